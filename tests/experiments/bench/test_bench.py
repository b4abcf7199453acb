import json

import pytest

from corag.errors import InputError
from experiments.bench.harness import Timing
from experiments.bench.run import BenchConfig, bench
from experiments.bench.search import CAPS, Run, curve, quality_row
from search.drivers import POLICIES


@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_settings_take_their_turns(clock):
    calls = []
    medians = Timing(3, clock).medians({"a": lambda: calls.append(1), "b": lambda: calls.append(2)})
    assert calls == [1, 2, 1, 2, 1, 2]
    assert list(medians) == ["a", "b"] and all(seconds >= 0 for seconds in medians.values())


def test_a_benchmark_prints_a_table_and_writes_its_figures(tmp_path, capsys):
    result = bench(BenchConfig("search", rounds=1, seeds=1, out=str(tmp_path / "new")))
    assert json.loads((tmp_path / "new" / "bench-search.json").read_text()) == result
    assert (result["part"], result["rounds"]) == ("search", 1)
    by_name = {row["setting"]: row for row in result["rows"]}
    # 50 chunks of 100 tokens at 1024: the root has 50 children, a child 49, and so on down.
    assert 10 * 40 < by_name["10 iterations"]["orders"] <= 10 * 50
    for size, num_nodes in (("1k", 1_000), ("10k", 10_000), ("100k", 100_000)):
        assert by_name[f"tree of {size} nodes"]["orders"] == pytest.approx(num_nodes, rel=0.2)
    assert all(row["us_per_order"] > 0 for row in result["rows"] if "ms" in row)
    for policy in POLICIES:
        row = by_name[f"{policy}, 80 orders of 50 chunks"]
        assert 0 < row["orders"] <= 80 and row["cpu_ms"] > 0 and "ms" not in row
        for cap in (48, 179):
            row = by_name[f"{policy}, at most {cap} orders"]
            assert 0 < row["orders"] <= cap and row["found"] == row["seeds"][0]["found"] <= 60
    assert by_name["bayesian, at most 48 orders"]["found"] >= 50
    for line in result["curve"]:
        assert line["found"] == sorted(line["found"]) and line["orders"] == sorted(line["orders"])
        assert line["found"][CAPS.index(48)] == by_name[f"{line['policy']}, at most 48 orders"]["found"]
    assert (tmp_path / "new" / "bench-search.svg").read_text().startswith("<svg")
    assert "tree of 100k nodes" in capsys.readouterr().out


RUNS = {7: [Run(10, 30, 0.25), Run(None, 200, 0.5)], 8: [Run(50, 60, 0.5), Run(170, 179, 0.5)]}


def test_a_line_of_the_table_by_hand():
    assert quality_row("some", RUNS) == {
        "setting": "some", "orders": (115 + 119.5) / 2, "ms": 500, "us_per_order": 0.5e6 / 117.25, "found": 1.5,
        "seeds": [{"seed": 7, "found": 1, "orders": 115}, {"seed": 8, "found": 2, "orders": 119.5}],
    }  # fmt: skip


def test_a_curve_by_hand():
    assert CAPS == (12, 24, 48, 96, 179)
    assert curve("some", RUNS) == {
        "policy": "some",
        "orders": [12, 24, (30 + 3 * 48) / 4, (30 + 96 + 60 + 96) / 4, (30 + 179 + 60 + 179) / 4],
        "found": [0.5, 0.5, 0.5, 1.0, 1.5],
    }


def test_no_rounds_are_refused():
    with pytest.raises(InputError, match="rounds must be at least 1, got 0"):
        BenchConfig("search", rounds=0)
    with pytest.raises(InputError, match="seeds must be at least 1, got 0"):
        BenchConfig("search", seeds=0)


@pytest.mark.parametrize(("setting", "message"), [("questions", "2 to 20"), ("queries", "40 to 200")])
def test_no_questions_are_refused(setting, message):
    with pytest.raises(InputError, match=f"{setting} must be at least 1, got 0; {message} are usual"):
        BenchConfig("scoring", **{setting: 0})
