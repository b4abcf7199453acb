"""The example that shows the method in one file trains the agent that the package trains."""

from itertools import product

import numpy as np
import pytest

import agent
import corag
from examples.train_agent import train as train_example
from experiments.agents.targets import TargetConfig
from experiments.agents.train import TrainAgentConfig, fit, known_labels
from tests.experiments.worlds import label_row, question_row, write_labels
from tests.wandb_files import offline_runs

GRID = list(product((2, 8, 40), (0.1, 2.4), (0.0, 0.3)))


@pytest.fixture
def table(tmp_path):
    """Questions in groups by document; ties within a class, leads below 10%, an answer that is missing, a failure."""
    drawn = np.random.default_rng(7)
    rows = []
    for number in range(60):
        highest = drawn.choice([0.3, 0.5, 0.52, 0.6, 0.9], size=3)
        for reranker, most in zip(("bm25", "minilm-cosine", "minilm-softsim"), highest.tolist(), strict=True):
            for iterations, exploration, weight in GRID:
                row = label_row(
                    f"q{number}", reranker, most * drawn.choice([0.5, 1.0]),
                    iterations=iterations, exploration=exploration, cost_weight=weight,
                    cost_tokens=int(drawn.integers(20, 64)),
                )  # fmt: skip
                rows.append(row | {3: {"rougeL": None}, 5: {"error": "late"}}.get(number, {}))
    questions = [
        question_row(f"q{number}", "?", vector, group=f"folder/{number // 2}")
        for number, vector in enumerate(drawn.normal(size=(60, 384)))
    ]
    return write_labels(tmp_path / "labels.parquet", rows, questions)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_example_gives_the_weights_of_the_packaged_recipe(tmp_path, table, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    config = TrainAgentConfig(
        str(table), str(tmp_path / "packaged"), features="query", target=TargetConfig("rougeL", 0.0),
        training=agent.TrainConfig(epochs=6, keep="last"), logger="none", quiet=True,
    )  # fmt: skip
    packaged = fit(known_labels(config), config).agent
    example = train_example(table, tmp_path / "example", epochs=6)
    assert example.weights.keys() == packaged.weights.keys()
    for name, weight in packaged.weights.items():
        assert np.array_equal(example.weights[name], weight), name
    assert example.config.to_dict() == packaged.config.to_dict()
    # The checkpoint is one that `--agent` takes, and W&B has the losses of each epoch.
    selector = corag.selector("corag", agent=tmp_path / "example")
    found, said = selector.predict("how many?", [], 48), packaged.predict(corag.embedder().embed(["how many?"])[0])
    assert found.configuration == said.configuration
    assert found.probabilities == pytest.approx(said.probabilities, abs=1e-3)
    [run] = offline_runs(tmp_path)
    epochs = [row for row in run.history if "train_loss" in row]
    assert len(epochs) == 6 and {"train_contrastive", "train_choice", "train_settings"} <= epochs[-1].keys()
    assert len(run.artifacts) == 1
