"""The label table that ships with the project: what its README says of it, and the agent that learned from it."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import agent
from corag.models.trained import FOLDER
from corag.selectors.corag.agents import SHIPPED_AGENT
from experiments.agents.targets import TargetConfig, best_single, utility
from experiments.agents.train import TEST, TrainAgentConfig, divided
from experiments.labels.table import read_labels
from tests.paths import GOLDEN

LABELS = Path(FOLDER) / "labels"


@pytest.fixture(scope="module")
def labels():
    return read_labels(str(LABELS / "labels.parquet"))


@pytest.mark.parametrize("name", ["labels.parquet", "left-out.parquet"])
def test_the_files_are_those_that_the_readme_names(name):
    content = (LABELS / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() in (LABELS / "README.md").read_text(encoding="utf-8")
    assert len(content) < 5_000_000


@pytest.mark.slow
def test_the_table_is_whole(labels):
    assert (len(labels), len(labels.configurations), labels.embedder) == (984, 24, "minilm")
    assert np.isfinite(utility(labels, TargetConfig())).all()
    assert (len(set(labels.data)), len(set(labels.kind))) == (12, 5)
    left_out = labels.measured_as(read_labels(str(LABELS / "left-out.parquet")))
    assert np.isfinite(left_out.measures["cost_tokens"]).all()


def test_the_shipped_agent_knows_the_tables_classes_and_its_best_single_configuration(labels):
    config = agent.load(Path(FOLDER) / SHIPPED_AGENT).config
    assert config.configurations == labels.configurations and config.ranges is None
    # The fallback is the best where values do not know the kind.
    known = labels.measured_as(read_labels(str(LABELS / "left-out.parquet")))
    best = best_single(known, utility(known, TargetConfig()))
    assert str(config.fallback) == labels.configurations[best]


def test_what_the_shipped_agent_says(labels):
    """Golden: how often it departs from its fallback on the test questions, and its first predictions."""
    loaded = agent.load(Path(FOLDER) / SHIPPED_AGENT)
    test = labels.of(divided(labels, TrainAgentConfig("l", "o")) == TEST)
    predictions = loaded.predict(test.features(loaded.config.features))
    golden = json.loads((GOLDEN / "agent-minilm.json").read_text())
    assert Counter(one.configuration for one in predictions) == golden["counts"]
    for one, expected in zip(predictions, golden["first"], strict=False):
        assert str(one) == expected["configuration"]
        assert list(one.probabilities.values()) == pytest.approx(expected["probabilities"], abs=1e-4)
