import functools

import pytest

from corag.errors import InputError
from experiments.bench.real import RealSet, bench_real
from experiments.bench.run import BenchConfig, bench
from experiments.bench.run import real as module
from tests.corag.worlds import HashReranker
from tests.experiments.worlds import QUERIES, write_folder

FEW = [query | {"candidates": query["candidates"][:3]} for query in QUERIES]


class Kept(HashReranker):
    identity = "hash 0"


def test_rows_and_curves(tmp_path):
    write_folder(tmp_path / "small", queries=FEW)
    some = RealSet("small", "small", "dev", 1, 2, 20)
    reranker = Kept()
    result = bench_real(
        tmp_path, values=tmp_path / "values", sets=[some], caps=(3, 16), reranker=reranker, surrogate=HashReranker(1)
    )
    rows = {row["setting"]: row for row in result["rows"]}
    for row in rows.values():
        assert (row["set"], row["questions"]) == ("small", 2)
        assert 0 < row["worst"] <= row["value"] <= 1 + 1e-6
        assert row["total_share"] == pytest.approx(row["orders"] / row["feasible"])
    for kind in ("bayesian", "bayesian, surrogate first"):
        assert rows[f"{kind}, at most 3"]["orders"] == 3
        assert rows[f"{kind}, at most 16"]["value"] > 0.8
        assert rows[f"{kind}, at most 5%"]["orders"] == 1  # 5% of 15, but one at least
    assert len(reranker.asked) == 2 * 15  # what is in the file is not asked for again
    trees = [rows[f"paper, 10 iterations, prefilter {share}"]["orders"] for share in (0.25, 1.0)]
    assert trees[0] < trees[1]
    assert {"set": "small", "kind": "bayesian", "share": [rows[f"bayesian, at most {n}"]["share"] for n in (3, 16)],
            "value": [rows[f"bayesian, at most {n}"]["value"] for n in (3, 16)]} in result["curves"]  # fmt: skip


def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    write_folder(tmp_path / "small", queries=FEW)
    small = {"sets": [RealSet("small", "small", "dev", 0, 2, 60)], "reranker": Kept(), "surrogate": HashReranker(1)}
    monkeypatch.setattr(module, "bench_real", functools.partial(bench_real, **small))
    result = bench(BenchConfig("real", data=str(tmp_path), out=str(tmp_path / "out")))
    assert result["rows"] and "at most 96" in capsys.readouterr().out
    assert (tmp_path / "out" / "bench-real.svg").read_text().startswith("<svg")
    with pytest.raises(InputError, match="part real needs data"):
        BenchConfig("real")
