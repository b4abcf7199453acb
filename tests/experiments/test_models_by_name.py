"""The whole way with models that a user names: the embedder and a reranker of the paper, as the hub has them."""

import json

import pytest

from corag.cli.main import main
from experiments.labels.table import read_metadata
from tests.corag.models.worlds import small_hub
from tests.experiments.worlds import MANY_QUERIES, write_folder

pytestmark = pytest.mark.slow

EMBEDDER, RERANKER = "BAAI/bge-m3", "BAAI/bge-reranker-v2-m3"


def test_from_labels_to_an_answer(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))

    def run(*arguments):
        assert main([str(argument) for argument in arguments]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    data = write_folder(tmp_path / "data", queries=MANY_QUERIES)
    labels, trained, result = tmp_path / "labels.parquet", tmp_path / "agent", tmp_path / "result.json"
    configurations = f"corag(unit=passage, reranker={RERANKER}), corag(unit=passage, reranker=bm25)"
    grid = ("--configurations", configurations, "--iterations", 2, "--explorations", 0.3, "--cost_weights", "0,0.1")
    asked = ("--budget", 48, "--reader", "extractive")
    measured = ("--data", data, "--embedder", EMBEDDER, "--quiet", "true", *asked)
    with small_hub(tmp_path / "models", tmp_path / "hub"):
        said = run("label", *measured, "--splits", "train", "--out", labels, *grid)
        assert f"labels in {labels}; train an agent with: corag train --labels {labels}" in said
        assert read_metadata(labels)["embedder"] == EMBEDDER
        run(
            "train",
            "agent",
            "--labels",
            labels,
            "--out",
            trained,
            "--training.epochs",
            2,
            "--target.margin",
            0,
            "--logger",
            "none",
        )
        methods = ("--methods", f"corag, naive(reranker={RERANKER})", "--agent", trained, "--latency_questions", 0)
        run("evaluate", *measured, "--split", "train", "--limit", 4, *methods, "--curves", "false", "--out", result)
        record = json.loads(result.read_text())
        assert {EMBEDDER, RERANKER} <= {model["model"] for model in record["models"]}
        assert all(row["failed"] == 0 and 0 < row["cost_tokens"] <= 48 for row in record["methods"])
        run("index", "--data", data, "--out", tmp_path / "index", "--embedder", EMBEDDER)
        asked = ("ask", "Who built the railway to Kell?", "--index", tmp_path / "index", *asked)
        said = json.loads(run(*asked, "--agent", trained, "--json"))
    assert said["chunks"] and said["trace"]["configuration"].startswith("corag(unit=passage, reranker=")
