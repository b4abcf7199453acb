"""The label table that ships with the project: what its README says of it, and the agent that learned from it."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

import agent
from corag.models.trained import FOLDER
from corag.selectors.corag.agents import SHIPPED_AGENT
from experiments.agents.targets import TargetConfig, best_single, utility
from experiments.agents.train import TEST, parts_of
from experiments.labels.arrays import read_labels
from tests.paths import GOLDEN

LABELS = Path(FOLDER) / "labels"
FILES = ("labels.parquet", "labels.questions.parquet")


@pytest.fixture(scope="module")
def arrays():
    return read_labels(str(LABELS / FILES[0]))


def test_the_files_are_those_that_the_readme_and_the_agents_card_name():
    hashes = {name: hashlib.sha256((LABELS / name).read_bytes()).hexdigest() for name in FILES}
    readme = (LABELS / "README.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"`(labels[a-z.]*\.parquet)` \| `([0-9a-f]{64})`", readme)) == hashes
    assert hashes[FILES[0]][:16] in (Path(FOLDER) / SHIPPED_AGENT / "README.md").read_text(encoding="utf-8")
    assert sum((LABELS / name).stat().st_size for name in FILES) < 5_000_000


@pytest.mark.slow
def test_the_table_is_whole(arrays):
    assert (len(arrays), len(arrays.configurations), arrays.embedder) == (1726, 108, "minilm")
    assert all(np.isfinite(arrays.figures[name]).all() for name in ("f1", "rougeL", "em", "confidence"))
    assert len(set(arrays.data)) == 8


def test_the_shipped_agent_knows_the_tables_rerankers_and_its_best_single_configuration(arrays):
    config = agent.load(Path(FOLDER) / SHIPPED_AGENT).config
    assert config.rerankers == arrays.rerankers
    assert config.ranges == arrays.ranges
    known = arrays.of(parts_of(arrays, (0.6, 0.1, 0.3), 0) != TEST)
    assert config.fixed == arrays.configurations[best_single(known, utility(known, TargetConfig()))]


def test_what_the_shipped_agent_says(arrays):
    """Golden: how often it departs from its fixed configuration on the test questions, and its first predictions."""
    loaded = agent.load(Path(FOLDER) / SHIPPED_AGENT)
    test = arrays.of(parts_of(arrays, (0.6, 0.1, 0.3), 0) == TEST)
    predictions = loaded.predict(test.features(loaded.config.features))
    golden = json.loads((GOLDEN / "agent-minilm.json").read_text())
    counts = {name: sum(one.reranker == name for one in predictions) for name in loaded.config.rerankers}
    assert counts == golden["counts"]
    for one, expected in zip(predictions, golden["first"], strict=False):
        assert one.reranker == expected["reranker"]
        assert one.iterations == expected["iterations"]
        assert list(one.probabilities.values()) == pytest.approx(expected["probabilities"], abs=1e-4)
