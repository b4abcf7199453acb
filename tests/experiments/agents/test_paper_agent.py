"""The paper's agent on a made pool: tiny cross-encoders, each trained for one kind of questions, and real labels."""

import numpy as np
import pytest

import agent
import corag
from corag.registry import RERANKERS
from experiments.agents.compare import named
from experiments.agents.train import TrainAgentConfig, train
from experiments.labels.table import read_labels
from tests.experiments.agents.kinds import KINDS, SPLITS, label_world, passage, questions, train_cross_encoder

pytestmark = pytest.mark.slow

SEEDS = (0,)


@pytest.fixture(scope="module", autouse=True)
def rerankers(tmp_path_factory):
    """Registers a cross-encoder for each kind."""
    for kind in KINDS:
        folder = str(train_cross_encoder(kind, tmp_path_factory.mktemp(kind)))
        RERANKERS.register(kind, lambda folder=folder: corag.reranker("cross-encoder", model=folder))
    yield
    for kind in KINDS:
        del RERANKERS.parts[kind]


@pytest.fixture(scope="module")
def labels(rerankers, tmp_path_factory):
    return label_world(tmp_path_factory.mktemp("labels"), tuple(KINDS), list(KINDS))


@pytest.fixture(scope="module")
def agents(labels, tmp_path_factory):
    """Agents of several seeds."""
    folder = tmp_path_factory.mktemp("agents")
    return [
        train(
            TrainAgentConfig(
                labels=str(labels), out=str(folder / str(seed)), recipe="paper", own_splits=True,
                quiet=True, logger="none",
                training=agent.TrainConfig(seed=seed),
            )
        )
        for seed in SEEDS
    ]  # fmt: skip


def test_it_reaches_the_oracle_within_two_percent(agents, labels):
    table = read_labels(str(labels))
    test = table.of(table.split == "test")
    values, rows = test.measures["rougeL"], np.arange(len(test))
    reached = [values[rows, named(report.agent, test)].mean() for report in agents]
    assert np.mean(reached) >= 0.98 * values.max(axis=1).mean()
    # The best single configuration serves one kind.
    assert values.mean(axis=0).max() < 0.4 * values.max(axis=1).mean()


def test_the_selector_searches_with_it(agents):
    selector = corag.selector("corag", agent=agents[0].checkpoint, tokens="minilm")
    [name] = SPLITS["test"]
    offered = [corag.Candidate(corag.Chunk(kind, passage(kind, name)[0]), 0.5) for kind in KINDS]
    for kind in KINDS:
        question = questions(kind, "test")[0]
        selection = selector.select(question, offered, 26)
        assert selection.ids == (kind,) and f"reranker={kind}" in selection.trace.details["configuration"]
