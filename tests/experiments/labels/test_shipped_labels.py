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
from experiments.agents.targets import FILLING, TargetConfig, best_fallback, utility
from experiments.agents.train import TEST, TrainAgentConfig, divided
from experiments.labels.table import read_labels
from tests.paths import GOLDEN

LABELS = Path(FOLDER) / "labels"
TABLES = ("labels-256.parquet", "labels-1024.parquet")


@pytest.fixture(scope="module")
def labels():
    return read_labels(",".join(str(LABELS / name) for name in TABLES))


@pytest.mark.parametrize("name", [*TABLES, "labels-4096.parquet", "labels.parquet", "labels-search.parquet"])
def test_the_files_are_those_that_the_readme_names(name):
    content = (LABELS / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() in (LABELS / "README.md").read_text(encoding="utf-8")
    assert len(content) < 5_000_000


@pytest.mark.slow
def test_the_tables_are_whole(labels):
    assert (len(labels.configurations), labels.embedder, labels.budgets) == (17, "minilm", (256, 1024))
    assert len(set(labels.kind)) == 9
    # Each question under both budgets.
    names = Counter(name.partition("@")[0] for name in labels.ids)
    assert set(names.values()) == {2}
    # A few questions have neither answers nor gold; within a budget nothing costs more.
    assert np.isfinite(utility(labels, TargetConfig())).all(axis=1).mean() > 0.9
    assert (labels.measures["cost_tokens"] <= labels.budget[:, None]).all()


def test_the_shipped_agent_knows_the_tables_classes_and_its_best_single_configuration(labels):
    config = agent.load(Path(FOLDER) / SHIPPED_AGENT).config
    assert config.configurations == labels.configurations and config.ranges is None
    known = labels.of(np.isfinite(utility(labels, TargetConfig())).all(axis=1))
    best = best_fallback(known, utility(known, TargetConfig()), config.filling)
    assert config.fallback.configuration == labels.configurations[best]
    assert config.filling == FILLING and config.novelty is not None and config.texts == len(set(labels.text))


def test_what_the_shipped_agent_says(labels):
    """Golden: how often it departs from its fallback on the test questions, and its first predictions."""
    loaded = agent.load(Path(FOLDER) / SHIPPED_AGENT)
    known = labels.of(np.isfinite(utility(labels, TargetConfig())).all(axis=1))
    test = known.of(divided(known, TrainAgentConfig("l", "o")) == TEST)
    predictions = loaded.predict(test.features(loaded.config.features), room=test.room)
    golden = json.loads((GOLDEN / "agent-minilm.json").read_text())
    assert Counter(one.configuration for one in predictions) == golden["counts"]
    for one, expected in zip(predictions, golden["first"], strict=False):
        assert str(one) == expected["configuration"]
        assert (one.keeps, one.spends) == pytest.approx((expected["keeps"], expected["spends"]), abs=1e-4)
