"""Benchmarks: each runs at tiny sizes, its table and its file agree, and its figures follow from what was timed."""

import json

import pytest

from experiments.bench import BenchConfig, bench
from tests.experiments.worlds import QUERIES, write_folder

FEW = [query | {"candidates": query["candidates"][:3]} for query in QUERIES]


def rows_of(part, folder, **settings):
    """The rows of a benchmark on short passages."""
    data = write_folder(folder / "data", queries=FEW)
    result = bench(BenchConfig(part, rounds=1, questions=2, data=str(data), out=str(folder), **settings))
    assert json.loads((folder / f"bench-{part}.json").read_text()) == result
    return result["rows"]


def test_search(tmp_path, capsys):
    rows = {row["setting"]: row for row in rows_of("search", tmp_path)}
    # 50 chunks of 100 tokens at 1024: the root has 50 children, a child 49, and so on down.
    assert 10 * 40 < rows["paper, 10 iterations"]["orders"] <= 10 * 50
    assert rows["bayesian, 80 orders"]["orders"] == 80
    printed = capsys.readouterr().out
    assert all(name.split(",")[0] in printed for name in rows)


@pytest.mark.slow
def test_selection(tmp_path):
    [ranked] = rows_of("selection", tmp_path, methods="naive(reranker=bm25)")
    assert ranked["setting"] == "naive(reranker=bm25)"
    assert 0 < ranked["cold_p50"] <= ranked["cold_p95"] and ranked["per_s"] > 0 and 0 < ranked["of_cosine"] < 1


@pytest.mark.slow
def test_a_device_and_a_reranker_that_fails(tmp_path):
    exact, half, failed = rows_of("gpu", tmp_path, device="cpu", methods="minilm-late,late(encoder=missing)")
    assert exact["largest_difference"] < 1e-5 and half["precision"] == "bf16" and exact["per_s"] > 0
    assert failed["setting"] == "late(encoder=missing)" and failed["error"]
