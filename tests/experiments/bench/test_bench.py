"""Benchmarks: each runs at tiny sizes, its table and its file agree, and its figures follow from what was timed."""

import json

import numpy as np
import pytest

from corag.errors import CoragError, DataError, InputError
from experiments.bench import gpu, selection
from experiments.bench.harness import Timing, perfect_batches
from experiments.bench.run import BenchConfig, bench
from tests.experiments.worlds import QUERIES, write_folder

FEW = [query | {"candidates": query["candidates"][:3]} for query in QUERIES]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["search", "scoring", "selection"])
def test_a_part_prints_a_table_and_writes_its_figures(part, tmp_path, capsys):
    settings = {
        "search": {"small": True},
        "scoring": {"questions": 1, "small": True},
        "selection": {"questions": 2, "methods": "top-k,naive(reranker=bm25)"},
    }
    result = bench(BenchConfig(part, rounds=1, out=str(tmp_path), **settings.get(part, {})))
    assert json.loads((tmp_path / f"bench-{part}.json").read_text()) == result
    printed, rows = capsys.readouterr().out, {row["setting"]: row for row in result["rows"]}
    assert all(name.split(",")[0] in printed for name in rows)
    if part == "search":
        # 50 chunks of 100 tokens at 1024: the root has 50 children, a child 49, and so on down.
        assert 10 * 40 < rows["paper, 10 iterations"]["orders"] <= 10 * 50
        assert all(row["optima"] <= 2 for row in rows.values() if "optima" in row)
    if part == "scoring":
        assert rows["cross-encoder"]["of_bare"] > 0 and rows["2 questions, select_many"]["same"] == "2 of 2"
        if "FlagReranker" in rows:
            assert rows["FlagReranker"]["largest_difference"] < 1e-5
    if part == "selection":
        ranked = rows["naive(reranker=bm25)"]
        assert 0 < ranked["cold_p50"] <= ranked["cold_p95"] and ranked["per_s"] > 0 and "of_encoder" in ranked


@pytest.mark.slow
def test_a_device_is_measured_on_a_cpu_too(monkeypatch, tmp_path):
    pytest.importorskip("lightning")
    rows = bench(BenchConfig("gpu", rounds=1, small=True, device="cpu", out=str(tmp_path)))["rows"]
    assert not [row for row in rows if "error" in row]
    assert {row["stage"] for row in rows} == {stage.__name__.replace("_", " ") for stage in gpu.STAGES}
    exact = [row for row in rows if row["stage"] == "parity" and row.get("precision") == "fp32"]
    assert len(exact) == len(gpu.SHIPPED) + 3 and all(row["largest_difference"] < 1e-5 for row in exact)


def test_a_stage_that_fails_or_comes_too_late_says_so():
    def broken(world):
        yield {"setting": "first"}
        raise ValueError("no such thing")

    def world(ends):
        return gpu.World(gpu.SMALL, [], [], "", "cpu", Timing(1), ends)

    def rows(ends):
        return list(gpu._stage(broken, world(ends)))

    assert rows(np.inf)[1]["error"] == "ValueError: no such thing"
    assert rows(0.0) == [{"stage": "broken", "setting": "first"}, {"stage": "broken", "error": "no time was left"}]


def test_questions_of_several_folders_take_turns(tmp_path):
    folders = [write_folder(tmp_path / name, queries=FEW) for name in ("a", "b")]
    asked = selection._questions(",".join(map(str, folders)), 4)
    assert len(asked) == 4 and asked[0][0] == asked[1][0] and len(asked[0][1]) == 3
    without = write_folder(tmp_path / "c", queries=[query | {"candidates": None} for query in FEW])
    with pytest.raises(DataError):
        selection._questions(str(without), 4)


def test_each_setting_takes_its_turn():
    calls = []
    seconds, results = Timing(3, "cpu").run({"a": lambda: calls.append(1), "b": lambda: calls.append(2) or "b"})
    assert calls == [1, 2] * 3
    assert list(seconds) == ["a", "b"] and all(spent >= 0 for spent in seconds.values())
    assert results == {"a": None, "b": "b"}


def test_perfect_batches_by_hand():
    batches = perfect_batches([10, 30, 50, 48, 46], 100)
    # 50 and 48 fill a batch, then 46 and 30; 10 is left.
    assert [batch["input_ids"].shape for batch in batches] == [(2, 49), (2, 38), (1, 10)]
    assert [batch["input_ids"].shape for batch in perfect_batches([30], 20)] == [(1, 30)]


@pytest.mark.parametrize(
    ("part", "settings", "error"),
    [
        ("search", {"rounds": 0}, InputError),
        ("scoring", {"questions": 0}, InputError),
        ("selection", {"budget": 0}, InputError),
        ("selection", {"methods": "no-such-selector"}, CoragError),
    ],
)
def test_settings_out_of_range(part, settings, error):
    with pytest.raises(error):
        BenchConfig(part, **settings)
