"""`corag tune`: the shift of the network worked by hand, the dial, the verdict, the checkpoint and the page."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent
import corag
from corag.errors import DataError
from experiments.agents.targets import TargetConfig
from experiments.labels.table import read_labels, read_metadata
from experiments.tune.config import TuneConfig
from experiments.tune.tune import FILLING, OWN_WEIGHT, TEMPERATURE, choose, promised_agent, tune, tuned_agent
from tests.experiments.worlds import MANY_QUERIES, label_row, question_row, write_folder, write_labels

NAMES = ("corag(cost_weight=0.1)", "top-k", "full")
FREE = TargetConfig(price=0.0)


def shipped_agent(names=NAMES[:2], min_lead=0.1):
    """An agent that gives all of its configurations the same odds; features `[4]`."""
    config = agent.AgentConfig(names, agent.Fallback(names[0]), 4, "toy", hidden=(), map_dim=4, min_lead=min_lead)
    return agent.ConfigurationAgent(
        config, {name: np.zeros(shape, np.float32) for name, shape in config.tensor_shapes.items()}
    )


def labels_of(tmp_path, values, tokens=(0, 0, 0), names=NAMES):
    """Labels of quality `[n, C]`, each question about a document of its own; `tokens` and `names` of configurations."""
    rows = [
        label_row(f"q{row}", "a", value, configuration=name, evidence_recall=value, cost_tokens=cost)
        for row, of_row in enumerate(values)
        for name, value, cost in zip(names, of_row, tokens, strict=False)
    ]
    questions = [question_row(f"q{row}", "?", np.eye(4)[row % 4]) for row in range(len(values))]
    return read_labels(str(write_labels(tmp_path / "labels.parquet", rows, questions)))


def test_the_shift_worked_by_hand(tmp_path):
    labels = replace(labels_of(tmp_path, [[0.5, 0.7]] * 10), settings_head=False)
    tuned, expected = tuned_agent(shipped_agent(), labels, FREE)
    share = 10 / (10 + OWN_WEIGHT)
    np.testing.assert_allclose(expected, [-0.1 * share, 0.1 * share])
    np.testing.assert_allclose(tuned.weights["choice.bias"], expected / TEMPERATURE, rtol=1e-6)
    assert tuned.config.fallback == agent.Fallback("top-k")
    # A network that expects this already is left as it is.
    weights = {**tuned.weights, "choice.bias": np.array([-0.1, 0.1], np.float32) / TEMPERATURE}
    again, _ = tuned_agent(agent.ConfigurationAgent(tuned.config, weights), labels, FREE)
    np.testing.assert_allclose(again.weights["choice.bias"], weights["choice.bias"], rtol=1e-6)


def test_a_configuration_that_the_agent_does_not_know_begins_like_its_fallback(tmp_path):
    labels = replace(labels_of(tmp_path, [[0.4, 0.4, 0.7]] * 40), settings_head=False)
    shipped = shipped_agent()
    weights = {**shipped.weights, "choice.weight": np.arange(8, dtype=np.float32).reshape(2, 4)}
    tuned, _ = tuned_agent(agent.ConfigurationAgent(shipped.config, weights), labels, FREE)
    assert tuned.config.configurations == NAMES and tuned.config.fallback.configuration == "full"
    np.testing.assert_array_equal(tuned.weights["choice.weight"][2], weights["choice.weight"][0])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.floats(0, 2), min_size=2, max_size=2))
def test_the_dial_does_not_contradict_itself(tmp_path_factory, seed, prices):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(10, 256, 3).tolist()
    labels = labels_of(tmp_path_factory.mktemp("l"), rng.uniform(size=(8, 3)).tolist(), tokens)
    labels = replace(labels, settings_head=False)
    shipped = shipped_agent(NAMES, min_lead=0.0)
    weights = {name: rng.normal(size=array.shape).astype(np.float32) for name, array in shipped.weights.items()}
    spent = []
    for price in sorted(prices):
        tuned, _ = tuned_agent(agent.ConfigurationAgent(shipped.config, weights), labels, TargetConfig(price=price))
        spent.append([tokens[NAMES.index(one.configuration)] for one in tuned.predict(labels.query_vectors)])
    assert all(cheaper <= dearer for dearer, cheaper in zip(*spent, strict=True))


def test_what_gains_is_used_and_the_default_kept_in_doubt(tmp_path):
    rng, shipped = np.random.default_rng(0), shipped_agent()
    default = rng.uniform(0.2, 0.5, 40)
    better = labels_of(tmp_path, np.stack([default, default + rng.uniform(0.1, 0.4, 40)], axis=1).tolist())
    tuning = choose(better, shipped, FREE)
    assert tuning.gain.low > 0
    assert tuning.decision()[0] == ("**Better answers** with as many tokens as the untuned agent: use the tuned agent.")
    assert str(tuning.used.predict(np.ones(4))) == "top-k"
    same = labels_of(tmp_path, np.stack([default, default + rng.normal(-0.02, 0.1, 40)], axis=1).tolist())
    tuning = choose(same, shipped, FREE)
    assert tuning.keeps_default and tuning.used is shipped and ": keep the default" in tuning.decision()[0]


def test_the_promise_by_hand(tmp_path):
    # Ten questions: what is used holds .9 of what filling holds, each time, at a quarter of its tokens.
    labels = labels_of(tmp_path, [[0.72, 0.8]] * 30, (16, 64), ("top-k", FILLING))
    tuning = choose(labels, shipped_agent(("top-k",), 0.0), TargetConfig(metric="answer_recall", price=1.0))
    assert tuning.promise() == "It keeps 90% to 90% of what filling holds, at 25% of its tokens."
    assert tuning.promise() in tuning.decision()
    assert choose(labels_of(tmp_path, [[0.5, 0.7]] * 40), shipped_agent(), FREE).promise() is None


def test_of_what_keeps_a_promise_the_cheapest_is_used(tmp_path):
    # Each of 30 questions is about a document of its own. "top-k" keeps .97 of what filling holds, "full" all of it at
    # half of its tokens, and "mmr" as much on the mean, but nothing on two thirds of the questions.
    held = [[0.776, 0.8, 0.0, 0.8], [0.776, 0.8, 0.0, 0.8], [0.776, 0.8, 2.4, 0.8]] * 10
    labels = labels_of(tmp_path, held, (8, 32, 4, 64), ("top-k", "full", "mmr", FILLING))
    named, least = promised_agent(labels, 0.98)
    assert str(named.config.fallback) == "full" and not named.has_network
    assert least[[0, 1, 3]] == pytest.approx([0.97, 1, 1]) and least[2] < 0.9
    assert str(promised_agent(labels, 0.96)[0].config.fallback) == "top-k"
    tuning = choose(labels, shipped_agent((FILLING,), 0.0), TargetConfig(metric="kept", price=0.01), keep=0.98)
    assert not tuning.keeps_default and str(tuning.used.config.fallback) == "full"
    assert tuning.decision()[-1] == "It keeps 100% to 100% of what filling holds, at 50% of its tokens."
    # Where the untuned agent spends as little, nothing is changed.
    assert choose(labels, shipped_agent(("full",), 0.0), TargetConfig(metric="kept"), keep=0.98).keeps_default


@pytest.mark.slow
def test_from_questions_to_a_checkpoint_that_is_used(tmp_path):
    data = write_folder(tmp_path / "island", queries=MANY_QUERIES)
    config = TuneConfig(
        str(data), str(tmp_path / "tuned"), configurations="naive(reranker=bm25),top-k(k=1)", budget=48,
        tokenizer="estimate", quiet=True,
    )  # fmt: skip
    tuning = tune(config)
    assert read_metadata(tmp_path / "tuned" / "labels.parquet")["tokenizer"] == corag.tokens("estimate").name
    files = {path.name for path in (tmp_path / "tuned").iterdir()}
    assert files - {"model.safetensors"} == {"README.md", "config.json", "report.html", "labels.parquet"}
    assert len(tuning.labels.configurations) == 19 and tuning.labels.configurations[-1] == "top-k(k=1)"
    page = (tmp_path / "tuned" / "README.md").read_text()
    assert page.index(tuning.decision()[0]) < page.index("On held-out questions")
    assert page.index("Each configuration") < page.index(tuning.contest.statistics())
    selector = corag.selector("corag", agent=tmp_path / "tuned")
    offered = [corag.Candidate(corag.Chunk("a", "Varn is an island."), 0.9)]
    selection = selector.select("What is Varn?", offered, 48)
    assert selection.ids and selection.trace.details["configuration"] in tuning.labels.configurations
    # Another price needs no new measurement.
    table = (tmp_path / "tuned" / "labels.parquet").read_bytes()
    tune(replace(config, prefer="tokens"))
    assert (tmp_path / "tuned" / "labels.parquet").read_bytes() == table


def test_too_few_questions_and_none_to_learn_from(tmp_path):
    for queries in (MANY_QUERIES[:5], [{**row, "answers": [], "gold": []} for row in MANY_QUERIES]):
        with pytest.raises(DataError, match="queries"):
            tune(TuneConfig(str(write_folder(tmp_path / "island", queries=queries)), str(tmp_path / "out"), quiet=True))
