"""BGE-M3 and a BGE reranker by their names, from an ordinary cache of the hub: from labels to an answer."""

import json
import os
import subprocess

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("FlagEmbedding")

from experiments.labels.table import read_metadata  # noqa: E402
from tests.corag.models.worlds import put_on_hub, save_bge_m3, save_xlm_roberta  # noqa: E402
from tests.experiments.worlds import DOCUMENTS, MANY_QUERIES, command, write_folder  # noqa: E402

EMBEDDER, RERANKER = "BAAI/bge-m3", "BAAI/bge-reranker-v2-m3"


@pytest.fixture
def run(tmp_path):
    """Runs `corag`, for which `HF_HOME` holds the two repositories with small random weights, and nothing else."""
    sentences = [document["text"] for document in DOCUMENTS]
    put_on_hub(tmp_path / "home" / "hub", EMBEDDER, save_bge_m3(tmp_path / "m3", 254, sentences))
    put_on_hub(tmp_path / "home" / "hub", RERANKER, save_xlm_roberta(tmp_path / "reranker", 254, sentences))
    [snapshot] = (tmp_path / "home" / "hub").glob("models--BAAI--bge-m3/snapshots/*")
    files = {path.name for path in snapshot.iterdir()}
    assert {"pytorch_model.bin", "sentencepiece.bpe.model"} <= files and "model.safetensors" not in files
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE_"))}
    changes = {"HF_HOME": tmp_path / "home", "HF_HUB_OFFLINE": "1", "CORAG_CACHE": tmp_path / "cache"}
    environment = inherited | {name: str(value) for name, value in changes.items()}

    def run(*arguments):
        done = subprocess.run(
            command(*arguments), env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.timeout(900)
def test_from_labels_to_an_answer(run, tmp_path):
    data = write_folder(tmp_path / "data", queries=MANY_QUERIES)
    labels, trained, result = tmp_path / "labels.parquet", tmp_path / "agent", tmp_path / "result.json"
    configurations = f"corag(unit=passage, reranker={RERANKER}), corag(unit=passage, reranker=bm25)"
    grid = ("--configurations", configurations, "--iterations", 2, "--explorations", 0.3, "--cost_weights", "0,0.1")
    asked = ("--budget", 48, "--reader", "extractive")
    measured = ("--data", data, "--embedder", EMBEDDER, "--quiet", "true", *asked)
    run("label", *measured, "--splits", "train", "--out", labels, *grid)
    assert read_metadata(labels)["embedder"] == EMBEDDER
    run("train", "agent", "--labels", labels, "--out", trained, "--training.epochs", 2, "--logger", "none")
    methods = ("--methods", f"corag, naive(reranker={RERANKER})", "--agent", trained, "--latency_questions", 0)
    run("evaluate", *measured, "--split", "train", "--limit", 4, *methods, "--curves", "false", "--out", result)
    record = json.loads(result.read_text())
    assert {EMBEDDER, RERANKER} <= {model["model"] for model in record["models"]}
    assert all(row["failed"] == 0 and 0 < row["cost_tokens"] <= 48 for row in record["methods"])
    run("index", "--data", data, "--out", tmp_path / "index", "--embedder", EMBEDDER)
    asked = ("ask", "Who built the railway to Kell?", "--index", tmp_path / "index", *asked)
    said = json.loads(run(*asked, "--agent", trained, "--json"))
    assert said["chunks"] and said["trace"]["configuration"].startswith("corag(unit=passage, reranker=")
