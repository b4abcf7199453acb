"""The example trains the agent of the paper: a checkpoint that `--agent` takes, its losses in W&B."""

import numpy as np
import pytest
import wandb

import corag
from examples.train_agent import train
from tests.experiments.worlds import label_row, question_row, write_labels
from tests.wandb_files import offline_runs


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_from_a_table_to_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    wandb.teardown()  # it reads its variables once for a process
    drawn = np.random.default_rng(7)
    rows = [
        label_row(
            f"q{number}", name, float((name == "bm25") == bool(number % 2)) / (1 + (count == 2)), iterations=count
        )
        for number in range(60)
        for name in ("bm25", "minilm-softsim")
        for count in (2, 8)
    ]
    questions = [
        question_row(f"q{number}", "?", vector, group=f"folder/{number // 2}")
        for number, vector in enumerate(drawn.normal(size=(60, 384)))
    ]
    trained = train(write_labels(tmp_path / "labels.parquet", rows, questions), tmp_path / "example", epochs=3)
    assert trained.config.ranges.iterations == (2, 8) and trained.config.features == ("query",)
    selector = corag.selector("corag", agent=tmp_path / "example")
    found, said = selector.predict("how many?", [], 48), trained.predict(corag.embedder().embed(["how many?"])[0])
    assert found.probabilities == pytest.approx(said.probabilities, abs=1e-3)
    [run] = offline_runs(tmp_path)
    epochs = [row for row in run.history if "train_loss" in row]
    assert len(epochs) == 3 and {"train_contrastive", "train_choice", "train_settings"} <= epochs[-1].keys()
    assert len(run.artifacts) == 1
