"""The label table that ships with the project: what its README says of it, and the agent that learned from it."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import agent
from corag.models.trained import FOLDER
from corag.selectors.corag.agents import SHIPPED_AGENT
from experiments.agents.targets import TargetConfig, best_single, utility
from experiments.agents.train import TEST, TrainAgentConfig, divided
from experiments.labels.table import fallback_of, read_labels
from tests.paths import GOLDEN

LABELS = Path(FOLDER) / "labels"


@pytest.fixture(scope="module")
def labels():
    return read_labels(str(LABELS / "labels.parquet"))


def test_the_file_is_the_one_that_the_readme_names():
    content = (LABELS / "labels.parquet").read_bytes()
    assert hashlib.sha256(content).hexdigest() in (LABELS / "README.md").read_text(encoding="utf-8")
    assert len(content) < 5_000_000


@pytest.mark.slow
def test_the_table_is_whole(labels):
    assert (len(labels), len(labels.configurations), labels.embedder) == (1726, 90, "minilm")
    assert all(np.isfinite(labels.measures[name]).all() for name in ("f1", "rougeL", "em"))
    assert len(set(labels.data)) == 8


def parts(labels):
    return divided(labels, TrainAgentConfig("l", "o"))


def test_the_shipped_agent_knows_the_tables_classes_and_its_best_single_configuration(labels):
    config, classes = agent.load(Path(FOLDER) / SHIPPED_AGENT).config, labels.classes()
    assert config.configurations == classes.names
    assert config.ranges.contains(classes.grid.settings * [1, 1, 0]).all()
    known = labels.of(parts(labels) != TEST)
    assert config.fallback == fallback_of(labels.configurations[best_single(known, utility(known, TargetConfig()))])


def test_what_the_shipped_agent_says(labels):
    """Golden: how often it departs from its fallback on the test questions, and its first predictions."""
    loaded = agent.load(Path(FOLDER) / SHIPPED_AGENT)
    test = labels.of(parts(labels) == TEST)
    predictions = loaded.predict(test.features(loaded.config.features))
    golden = json.loads((GOLDEN / "agent-minilm.json").read_text())
    counts = {name: sum(one.reranker == name for one in predictions) for name in golden["counts"]}
    assert counts == golden["counts"]
    for one, expected in zip(predictions, golden["first"], strict=False):
        assert one.reranker == expected["reranker"]
        assert one.iterations == expected["iterations"]
        assert list(one.probabilities.values()) == pytest.approx(expected["probabilities"], abs=1e-4)
