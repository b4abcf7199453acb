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

*LABELLED, FIFTH = KINDS
SEEDS = (0,)
CHANCE = 1 / len(KINDS)
DESCRIPTIONS = {kind: KINDS[kind].description for kind in KINDS}


def spelled(kind):
    return f"corag(unit=passage, reranker={kind})"


@pytest.fixture(scope="module", autouse=True)
def rerankers(tmp_path_factory):
    """Registers a cross-encoder for each kind; nobody labels with the last."""
    for kind in KINDS:
        folder = str(train_cross_encoder(kind, tmp_path_factory.mktemp(kind)))
        RERANKERS.register(kind, lambda folder=folder: corag.reranker("cross-encoder", model=folder))
    yield
    for kind in KINDS:
        del RERANKERS.parts[kind]


@pytest.fixture(scope="module")
def labels(rerankers, tmp_path_factory):
    return label_world(tmp_path_factory.mktemp("labels"), tuple(LABELLED), LABELLED)


@pytest.fixture(scope="module")
def agents(labels, tmp_path_factory):
    """Agents of several seeds that know the fifth reranker by its description alone."""
    folder = tmp_path_factory.mktemp("agents")
    return [
        train(
            TrainAgentConfig(
                labels=str(labels), out=str(folder / str(seed)), recipe="paper", train_split="train", val_split="dev",
                descriptions=DESCRIPTIONS, extra_rerankers=FIFTH, quiet=True,
                training=agent.TrainConfig(seed=seed, logger="none"),
            )
        )
        for seed in SEEDS
    ]  # fmt: skip


def test_it_reaches_the_oracle_within_two_percent(agents, labels):
    table = read_labels(str(labels))
    test = table.of(table.split == "test")
    values, rows = test.measures["rougeL"], np.arange(len(test))
    reached = [values[rows, named(report.agent, test, ("query",))].mean() for report in agents]
    assert np.mean(reached) >= 0.98 * values.max(axis=1).mean()
    # The best single configuration serves one kind.
    assert values.mean(axis=0).max() < 0.4 * values.max(axis=1).mean()


def test_a_reranker_that_nobody_labelled_is_chosen_where_it_should_be(agents):
    embedder = corag.embedder()
    asked = {kind: embedder.embed(questions(kind, "test")) for kind in KINDS}
    shares = {
        kind: np.mean([[one.reranker == FIFTH for one in report.agent.predict(asked[kind])] for report in agents])
        for kind in KINDS
    }
    assert shares[FIFTH] > 2 * CHANCE
    assert np.mean([shares[kind] for kind in LABELLED]) < CHANCE / 2


def test_the_selector_searches_with_it(agents):
    selector = corag.selector("corag", agent=agents[0].checkpoint, tokens="minilm")
    [name] = SPLITS["test"]
    offered = [corag.Candidate(corag.Chunk(kind, passage(kind, name)[0]), 0.5) for kind in KINDS]
    for kind, question in ((FIFTH, questions(FIFTH, "test")[0]), ("kings", questions("kings", "test")[0])):
        selection = selector.select(question, offered, 26)
        assert selection.ids == (kind,) and f"reranker={kind}" in selection.trace.details["configuration"]


def test_a_reranker_added_later_is_as_one_of_the_training(agents, labels, tmp_path):
    config = TrainAgentConfig(
        labels=str(labels), out=str(tmp_path), recipe="paper", train_split="train", val_split="dev", quiet=True,
        descriptions={kind: DESCRIPTIONS[kind] for kind in LABELLED},
        training=agent.TrainConfig(seed=SEEDS[0], logger="none"),
    )  # fmt: skip
    without = train(config).agent
    assert without.config.unlabelled == ()
    vector = corag.embedder().embed([DESCRIPTIONS[FIFTH]])[0]
    later = without.with_configuration(spelled(FIFTH), vector)
    vectors = corag.embedder().embed(questions(FIFTH, "test"))
    np.testing.assert_allclose(
        [list(one.probabilities.values()) for one in later.predict(vectors)],
        [list(one.probabilities.values()) for one in agents[0].agent.predict(vectors)],
        atol=1e-5,
    )
