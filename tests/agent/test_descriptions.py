"""Rerankers known by descriptions: what an agent stores, how it predicts, and what it refuses."""

import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent
from agent import AgentConfig, AgentError, CheckpointError, ConfigurationAgent, Ranges
from agent.predict import TEMPERATURE
from tests.agent.worlds import DIM, RANGES, random_agent, random_weights, toy_config
from tests.paths import ROOT

FEATURES = np.random.default_rng(1).normal(size=(50, DIM)).astype(np.float32)


def described_agent(**changes):
    return random_agent(toy_config(described=("second", "first"), **changes))


def agent_on_a_line(described=("first", "second"), places=(0.0, 1.0)):
    """Map = (relu(x0),); the head says `first` by odds of 3 to 1; each description lies at a place of the line."""
    config = toy_config(hidden=(), map_dim=1, described=described)
    weights = {name: np.zeros(shape, np.float32) for name, shape in config.tensor_shapes.items()}
    weights["encoder.0.weight"][0, 0] = 1.0
    weights["reranker.bias"][0] = np.log(3)
    weights["descriptions"][:, 0] = places
    return ConfigurationAgent(config, weights)


def at(place):
    features = np.zeros(DIM)
    features[0] = place
    return features


def test_descriptions_leave_what_was_labelled_to_the_head():
    plain = random_agent()
    weights = {**plain.weights, "descriptions": np.ones((2, DIM), np.float32)}
    described = ConfigurationAgent(toy_config(described=("second", "first")), weights)
    assert described.predict(FEATURES) == plain.predict(FEATURES)


def test_what_was_never_labelled_takes_its_share_by_hand():
    trained = agent_on_a_line().with_reranker("third", at(3.0))
    assert trained.config.all_rerankers == ("first", "second", "third")
    # From 2 the squared distances are 4, 1 and 1.
    near = np.exp(np.array([-4.0, -1.0, -1.0]) / TEMPERATURE)
    share = near[2] / near.sum()
    found = trained.predict(at(2.0))
    wanted = {"first": 0.75 * (1 - share), "second": 0.25 * (1 - share), "third": share}
    assert found.probabilities == pytest.approx(wanted)
    assert share == pytest.approx(0.5) and found.reranker == "third"
    assert trained.predict(at(3.0)).probabilities["third"] > 0.999
    assert trained.predict(at(0.0)).reranker == "first"


def test_a_further_reranker_can_be_ruled_out():
    trained = agent_on_a_line().with_reranker("third", at(3.0))
    assert trained.predict(at(3.0), available=["first", "second"]).reranker == "first"
    assert trained.predict(at(0.0), available=["third"]).reranker == "third"
    assert trained.predict(at(3.0)).iterations == agent_on_a_line().predict(at(3.0)).iterations


def test_a_labelled_reranker_without_a_description_stays_in_the_head():
    trained = agent_on_a_line(("first",), (0.0,)).with_reranker("third", at(3.0))
    assert trained.predict(at(3.0)).reranker == "third"
    probabilities = trained.predict(at(0.0)).probabilities
    assert probabilities["first"] == pytest.approx(3 * probabilities["second"])


def test_a_cautious_agent_keeps_to_the_fixed_configuration():
    trained = agent_on_a_line().with_reranker("third", at(3.0))
    config = toy_config(hidden=(), map_dim=1, described=trained.config.described, min_lead=0.5)
    found = ConfigurationAgent(config, trained.weights).predict(at(2.0))
    assert (found.reranker, found.unsure, found.iterations) == ("first", True, 10)


@given(st.lists(st.sampled_from("abcdef"), unique=True, max_size=4), st.integers(0, 99))
def test_probabilities_add_up_and_earlier_ones_keep_their_order(names, seed):
    trained = described_agent()
    for number, name in enumerate(names):
        trained = trained.with_reranker(name, np.random.default_rng((seed, number)).normal(size=DIM))
    for one, before in zip(trained.predict(FEATURES), described_agent().predict(FEATURES), strict=True):
        assert tuple(one.probabilities) == ("first", "second", *names)
        assert sum(one.probabilities.values()) == pytest.approx(1.0)
        assert min(one.probabilities.values()) >= 0.0
        ratio = one.probabilities["first"] * before.probabilities["second"]
        assert ratio == pytest.approx(one.probabilities["second"] * before.probabilities["first"], abs=1e-9)


def test_round_trip_with_and_without_further_rerankers(tmp_path):
    for trained in (described_agent(), described_agent().with_reranker("third", np.ones(DIM))):
        agent.save(tmp_path / "checkpoint", trained, agent.model_card(trained.config, {}))
        loaded = agent.load(tmp_path / "checkpoint")
        assert loaded.config == trained.config
        assert loaded.predict(FEATURES) == trained.predict(FEATURES)
    card = (tmp_path / "checkpoint" / "README.md").read_text()
    assert "Rerankers, in label order: `first`, `second`. Known by their description alone: `third`." in card


def test_a_checkpoint_of_the_time_before_descriptions(tmp_path):
    agent.save(tmp_path / "checkpoint", random_agent(), "")
    config = tmp_path / "checkpoint" / "config.json"
    values = json.loads(config.read_text())
    assert values.pop("described") == []
    config.write_text(json.dumps(values))
    loaded = agent.load(tmp_path / "checkpoint")
    assert loaded.config == toy_config()
    assert loaded.predict(FEATURES) == random_agent().predict(FEATURES)


def test_the_shipped_checkpoint_predicts_as_its_tensors_say():
    shipped = agent.load(ROOT / "checkpoints" / "agent-minilm")
    assert shipped.config.described == ()
    rows = np.random.default_rng(0).normal(size=(20, shipped.config.feature_dim)) / 20
    maps = rows
    for layer in range(3):
        maps = maps @ shipped.weights[f"encoder.{layer}.weight"].T + shipped.weights[f"encoder.{layer}.bias"]
        maps = np.maximum(maps, 0)
    odds = np.exp(maps @ shipped.weights["reranker.weight"].T + shipped.weights["reranker.bias"])
    found = [list(one.probabilities.values()) for one in shipped.predict(rows)]
    np.testing.assert_allclose(found, odds / odds.sum(axis=1, keepdims=True), rtol=1e-9)


def test_a_checkpoint_that_lost_its_descriptions(tmp_path):
    agent.save(tmp_path / "checkpoint", described_agent(), "")
    config = tmp_path / "checkpoint" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "described": []}))
    with pytest.raises(CheckpointError, match=r"does not fit config\.json.*unknown tensors \['descriptions'\]"):
        agent.load(tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"described": ("first", "first")}, "described must hold each name once"),
        ({"described": ["first"]}, "described must be a tuple"),
        ({"described": ("third",)}, "none of the described rerankers third is among those labelled, first, second"),
    ],
)
def test_descriptions_that_cannot_be(changes, message):
    with pytest.raises(AgentError, match=message):
        toy_config(**changes)


@pytest.mark.parametrize(
    ("name", "vector", "message"),
    [
        ("first", np.ones(DIM), "knows 'first' already; its rerankers are first, second"),
        ("third", np.ones(DIM + 1), r"shape \[6\] or .*got \[7\].*'toy'"),
        ("third", np.ones((1, DIM)), r"one vector \[6\], got \[1, 6\]"),
        ("third", np.full(DIM, np.nan), "finite"),
        ("", np.ones(DIM), "every name in described must be a non-empty string"),
    ],
)
def test_a_further_reranker_that_cannot_be(name, vector, message):
    with pytest.raises(AgentError, match=message):
        described_agent().with_reranker(name, vector)


def test_an_agent_without_descriptions_cannot_be_extended():
    with pytest.raises(AgentError, match=r"without descriptions.*'third' has nothing to.*corag train --recipe paper"):
        random_agent().with_reranker("third", np.ones(DIM))


@pytest.mark.slow
def test_a_prediction_takes_less_than_a_millisecond():
    names = ("a", "b", "c", "d")
    config = AgentConfig(1024, names, RANGES, "bge-m3", described=names)
    trained = ConfigurationAgent(config, random_weights(config, scale=0.05))
    for number in range(4):
        trained = trained.with_reranker(f"further {number}", np.random.default_rng(number).normal(size=1024))
    features, spent = np.random.default_rng(9).normal(size=1024), []
    for _ in range(50):
        started = time.perf_counter()
        trained.predict(features)
        spent.append(time.perf_counter() - started)
    assert min(spent) < 1e-3


def test_one_value_of_each_setting_is_predicted_as_it_is():
    ranges = Ranges(iterations=(10, 10), exploration=(2.4, 2.4), cost_weight=(0.1, 0.1))
    config = AgentConfig(DIM, ("a", "b"), ranges, "toy", hidden=(4,), map_dim=3, described=("a", "b"))
    found = ConfigurationAgent(config, random_weights(config)).predict(FEATURES[0])
    assert (found.iterations, found.exploration, found.cost_weight) == (10, 2.4, 0.1)
