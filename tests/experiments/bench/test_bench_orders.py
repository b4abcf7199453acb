import re
from dataclasses import replace

import pytest

from corag.errors import InputError, ModelError
from experiments.bench.orders import _named, _row, _Search, plot
from experiments.bench.run import BenchConfig, bench
from experiments.bench.run import orders as part
from experiments.evaluation.methods import parse_method


def test_a_line_for_each_reranker_size_and_policy(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(part, "SIZES", (3, 6))
    monkeypatch.setattr(part, "MAX_SCORED", 12)
    loaded = []
    monkeypatch.setattr(
        part, "_load", lambda kind, method, rounds: loaded.append((kind, method.name)) or {"load_s": 1, "load_cpu_s": 1}
    )
    result = bench(BenchConfig("orders", rounds=2, rerankers="bm25,minilm-factoid", out=str(tmp_path)))
    *rows, reader = result["rows"]
    assert [(row["candidates"], row["setting"], row["policy"]) for row in rows] == [
        (size, name, policy)
        for size in (3, 6)
        for name, own in (("bm25", "bayesian"), ("minilm-factoid", "beam"))
        for policy in ("paper", own)
    ]
    for row in rows:
        assert 0 < row["orders"] <= 12
        assert 0 < row["per_s_cold"] <= row["per_s"]
        assert row["prepare_ms"] > 0
    assert reader["setting"] == "reader minilm-reader"
    assert loaded == [("reranker", "bm25"), ("reranker", "minilm-factoid"), ("reader", "minilm-reader")]
    assert "minilm-factoid" in capsys.readouterr().out
    assert (tmp_path / "bench-orders.svg").read_text().startswith("<svg")


def test_a_line_by_hand():
    searches = [_Search("beam", 10, 0.5, 0.5), _Search("beam", 20, 0.1, 0.1), _Search("beam", 30, 0.25, 0.75)]
    assert _row(50, searches) == {
        "candidates": 50, "policy": "beam", "orders": 20, "prepare_ms": 250.0, "per_s_cold": 30, "per_s": 40,
    }  # fmt: skip
    row = {"setting": "some", **_row(50, searches), "policy": "paper"}
    assert re.search(r"some, 50", plot({"rows": [row]}))


def test_all_and_others_beside_it(tmp_path):
    named = _named("all, bm25:b=0.5,", tmp_path)
    assert [method.label for method in named] == [*part.SHIPPED, "cross-encoder", "bm25:b=0.5"]
    assert named[-2].settings == {"model": str(tmp_path)} and named[-1].settings == {"b": 0.5}
    with pytest.raises(InputError, match="name at least one"):
        _named(" , ", tmp_path)


def test_more_rounds_than_the_demo_has_chunks(monkeypatch):
    content = part.demo.load()
    monkeypatch.setattr(part.demo, "load", lambda: replace(content, documents=content.documents[:1]))
    with pytest.raises(InputError, match="ask for no more"):
        part._pools(1)


def test_loading_in_a_fresh_process():
    found = part._load("reranker", parse_method("bm25"), 1)
    assert found["load_cpu_s"] > 0 and found["load_s"] > 0
    with pytest.raises(ModelError, match=r"cannot be loaded in a fresh process: corag\.errors.*'nothing' is unknown"):
        part._load("reranker", parse_method("nothing"), 1)
