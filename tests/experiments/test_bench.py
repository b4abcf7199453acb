import json

import pytest

from corag.errors import InputError
from experiments.bench import BenchConfig, bench, interleaved_medians


def test_settings_take_their_turns():
    calls = []
    medians = interleaved_medians({"a": 1, "b": 2}, calls.append, rounds=3)
    assert calls == [1, 2, 1, 2, 1, 2]
    assert list(medians) == ["a", "b"] and all(seconds >= 0 for seconds in medians.values())


def test_a_benchmark_prints_a_table_and_writes_its_figures(tmp_path, capsys):
    result = bench(BenchConfig("search", rounds=1, out=str(tmp_path / "new")))
    assert json.loads((tmp_path / "new" / "bench-search.json").read_text()) == result
    assert (result["part"], result["rounds"]) == ("search", 1)
    by_name = {row["setting"]: row for row in result["rows"]}
    # 50 chunks of 100 tokens at 1024: the root has 50 children, a child 49, and so on down.
    assert 10 * 40 < by_name["10 iterations"]["orders"] <= 10 * 50
    for size, num_nodes in (("1k", 1_000), ("10k", 10_000), ("100k", 100_000)):
        assert by_name[f"tree of {size} nodes"]["orders"] == pytest.approx(num_nodes, rel=0.2)
    assert all(row["ms"] > 0 and row["us_per_order"] > 0 for row in result["rows"])
    assert "tree of 100k nodes" in capsys.readouterr().out


def test_no_rounds_are_refused():
    with pytest.raises(InputError, match="rounds must be at least 1, got 0"):
        BenchConfig("search", rounds=0)
