"""The paper's agent on a made pool: tiny cross-encoders, each trained for one kind of questions, and real labels."""

import json

import numpy as np
import pytest

import agent
import corag
from experiments.agents.evaluate import EvaluateAgentConfig, evaluate_agent
from experiments.agents.train import TrainAgentConfig, train
from experiments.labels.arrays import read_labels
from tests.experiments.agents.kinds import KINDS, SPLITS, label_world, passage, questions, train_cross_encoder

pytestmark = pytest.mark.slow

*LABELLED, FIFTH = KINDS
SEEDS = (0, 1, 2)
CHANCE = 1 / len(KINDS)


@pytest.fixture(scope="module")
def rerankers(tmp_path_factory):
    """The folder of each kind's cross-encoder; nobody labels with the last."""
    return {kind: str(train_cross_encoder(kind, tmp_path_factory.mktemp(kind))) for kind in KINDS}


@pytest.fixture(scope="module")
def labels(rerankers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    return label_world(folder, tuple(LABELLED), [rerankers[kind] for kind in LABELLED])


@pytest.fixture(scope="module")
def agents(rerankers, labels, tmp_path_factory):
    """Agents of several seeds that know the fifth reranker by the model card in its folder alone."""
    folder = tmp_path_factory.mktemp("agents")
    return [
        train(
            TrainAgentConfig(
                labels=str(labels), out=str(folder / str(seed)), recipe="paper", train_split="train", val_split="dev",
                extra_rerankers=rerankers[FIFTH], training=agent.TrainConfig(seed=seed, logger="none"), quiet=True,
            )
        )
        for seed in SEEDS
    ]  # fmt: skip


def test_the_labels_say_that_the_kind_decides(labels, rerankers):
    arrays = read_labels(str(labels))
    for name, values in zip(arrays.ids, arrays.figures["rougeL"], strict=True):
        best = {arrays.configurations[column].reranker for column in np.flatnonzero(values == values.max())}
        assert best == {rerankers[name.split("/")[1].split("-")[0]]}


def test_it_reaches_the_oracle_within_two_percent(agents, labels):
    arrays = read_labels(str(labels))
    test = arrays.of(arrays.split == "test")
    values, rows, reached = test.figures["rougeL"], np.arange(len(test)), []
    for report in agents:
        found = report.agent.predict(test.features(("query",)), available=test.rerankers)
        settings = [[one.iterations, one.exploration, one.cost_weight] for one in found]
        chosen = [test.rerankers.index(one.reranker) for one in found]
        reached.append(values[rows, test.grid.nearest(chosen, settings, report.agent.config.ranges)].mean())
    assert np.mean(reached) >= 0.98 * values.max(axis=1).mean()
    # The best single configuration serves one kind.
    assert values.mean(axis=0).max() < 0.4 * values.max(axis=1).mean()


def test_a_reranker_that_nobody_labelled_is_chosen_where_it_should_be(agents, rerankers):
    embedder = corag.embedder()
    asked = {kind: embedder.embed(questions(kind, "test")) for kind in KINDS}
    shares = {
        kind: np.mean([[one.reranker == rerankers[FIFTH] for one in report.agent.predict(asked[kind])]
                       for report in agents])
        for kind in KINDS
    }  # fmt: skip
    assert shares[FIFTH] > 2 * CHANCE
    assert np.mean([shares[kind] for kind in LABELLED]) < CHANCE / 2


def test_the_selector_searches_with_it(agents, rerankers):
    selector = corag.selector("corag", agent=agents[0].checkpoint, tokens="minilm")
    [name] = SPLITS["test"]
    offered = [corag.Candidate(corag.Chunk(kind, passage(kind, name)[0]), 0.5) for kind in KINDS]
    for kind, question in ((FIFTH, questions(FIFTH, "test")[0]), ("kings", questions("kings", "test")[0])):
        selection = selector.select(question, offered, 26)
        assert (selection.ids, selection.trace.reranker) == ((kind,), corag.reranker(rerankers[kind]).name)


def test_a_reranker_added_later_is_as_one_of_the_training(agents, rerankers, labels, tmp_path):
    config = TrainAgentConfig(
        labels=str(labels), out=str(tmp_path), recipe="paper", train_split="train", val_split="dev",
        training=agent.TrainConfig(seed=SEEDS[0], logger="none"), quiet=True,
    )  # fmt: skip
    without = train(config).agent
    assert without.config.unlabelled == ()
    later = without.with_reranker(rerankers[FIFTH], corag.embedder().embed([KINDS[FIFTH].description])[0])
    vectors = corag.embedder().embed(questions(FIFTH, "test"))
    mine, its = later.predict(vectors), agents[0].agent.predict(vectors)
    assert [one.reranker for one in mine] == [one.reranker for one in its]
    np.testing.assert_allclose(
        [list(one.probabilities.values()) for one in mine], [list(one.probabilities.values()) for one in its], atol=1e-5
    )


def test_the_comparison_takes_the_recipe(labels, tmp_path):
    result = evaluate_agent(
        EvaluateAgentConfig(
            labels=str(labels), out=str(tmp_path), recipe="paper", methods="agent,agent-without-descriptions,majority",
            protocols="held-out", seeds=1, training=agent.TrainConfig(epochs=20), logger="none", quiet=True,
        )
    )  # fmt: skip
    [part] = result["protocols"]["held-out"].values()
    found = {row["method"]: row["quality"] for row in part["methods"]}
    assert set(found) == {"majority", "best-single", "oracle", "agent", "agent-without-descriptions"}
    assert found["agent"] > 0.8 * found["oracle"] > found["majority"]
    assert (result["metric"], result["config"]["recipe"]) == ("rougeL", "paper")
    assert json.loads((tmp_path / "result.json").read_text())["config"]["target"]["weighting"] == "rule"
