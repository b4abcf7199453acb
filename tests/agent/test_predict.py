import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from agent import AgentError, ConfigurationAgent
from tests.agent.worlds import DIM, RANGES, random_agent, random_weights, toy_config


def agent_that_passes_one_feature_on(**changes):
    """Map = (relu(x0),), logits = (0, map), settings = sigmoid(0) = half of each range."""
    config = toy_config(hidden=(), map_dim=1, **changes)
    weights = {name: np.zeros(shape, np.float32) for name, shape in config.tensor_shapes.items()}
    weights["encoder.0.weight"][0, 0] = 1.0
    weights["reranker.weight"][1, 0] = 1.0
    return ConfigurationAgent(config, weights)


def test_a_prediction_worked_by_hand():
    features = np.zeros(DIM)
    features[0] = np.log(3)
    prediction = agent_that_passes_one_feature_on().predict(features)
    assert prediction.reranker == "second"
    assert (prediction.iterations, prediction.exploration) == (8, 1.5)
    assert prediction.cost_weight == pytest.approx(0.15)
    assert prediction.probabilities == pytest.approx({"first": 0.25, "second": 0.75})


def test_a_tie_goes_to_the_first_label():
    assert agent_that_passes_one_feature_on().predict(-np.ones(DIM)).reranker == "first"


def test_one_vector_or_many():
    agent = random_agent()
    rows = np.random.default_rng(0).normal(size=(5, DIM))
    together = agent.predict(rows)
    assert [p.reranker for p in together] == [agent.predict(row).reranker for row in rows]
    for one, many in zip((agent.predict(row) for row in rows), together, strict=True):
        assert one.exploration == pytest.approx(many.exploration)
    assert agent.predict(np.zeros((0, DIM))) == []


def test_only_available_rerankers_are_chosen():
    agent = agent_that_passes_one_feature_on()
    features = np.ones(DIM)
    assert agent.predict(features).reranker == "second"
    prediction = agent.predict(features, available={"first", "unheard of"})
    assert prediction.reranker == "first"
    assert prediction.probabilities == agent.predict(features).probabilities
    for available in ((), ["unheard of"]):
        with pytest.raises(AgentError, match=r"none of the available rerankers.*it knows first, second"):
            agent.predict(features, available=available)


@pytest.mark.parametrize(("min_lead", "reranker"), [(0.0, "second"), (0.49, "second"), (0.51, "first"), (1.0, "first")])
def test_a_cautious_agent_keeps_to_the_fixed_configuration_where_its_lead_is_small(min_lead, reranker):
    features = np.zeros(DIM)
    features[0] = np.log(3)  # probabilities 0.25 and 0.75: a lead of 0.5 over "first", which is fixed
    prediction = agent_that_passes_one_feature_on(min_lead=min_lead).predict(features)
    settings = (prediction.iterations, prediction.exploration, prediction.cost_weight)
    assert (prediction.reranker, prediction.unsure) == (reranker, reranker == "first")
    assert settings == pytest.approx((10, 2.4, 0.1) if reranker == "first" else (8, 1.5, 0.15))
    assert prediction.probabilities == pytest.approx({"first": 0.25, "second": 0.75})


def test_without_its_lead_the_fixed_reranker_keeps_its_fixed_settings_too():
    prediction = agent_that_passes_one_feature_on(min_lead=0.1).predict(-np.ones(DIM))
    assert (prediction.reranker, prediction.iterations, prediction.exploration) == ("first", 10, 2.4)
    assert prediction.unsure


def test_there_is_nothing_to_keep_to_where_the_fixed_reranker_is_not_at_hand():
    prediction = agent_that_passes_one_feature_on(min_lead=1.0).predict(np.ones(DIM), available=["second"])
    assert (prediction.reranker, prediction.iterations, prediction.unsure) == ("second", 8, False)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros(7), r"shape \[6\] or \[b, 6\], got \[7\].*embedder 'toy'"),
        (np.zeros((2, 1024)), r"\[b, 6\], got \[2, 1024\]"),
        (np.zeros((1, 1, 6)), r"got \[1, 1, 6\]"),
        (1.0, r"got \[\]"),
        ([0, 0, 0, 0, 0, np.nan], "finite.*'toy'"),
        ([1e300, 0, 0, 0, 0, 0], "finite float32"),
        (["word"] * 6, "array of numbers"),
    ],
)
def test_bad_features(features, message):
    with pytest.raises(AgentError, match=message):
        random_agent().predict(features)


@given(hnp.arrays(np.float32, DIM, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_settings_stay_in_range_for_any_finite_features(features):
    prediction = random_agent(scale=5.0).predict(features)
    assert isinstance(prediction.iterations, int)
    assert RANGES.iterations[0] <= prediction.iterations <= RANGES.iterations[1]
    assert RANGES.exploration[0] <= prediction.exploration <= RANGES.exploration[1]
    assert RANGES.cost_weight[0] <= prediction.cost_weight <= RANGES.cost_weight[1]
    assert sum(prediction.probabilities.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("reranker.bias"), r"missing tensors \['reranker.bias'\]"),
        (lambda weights: weights.update(more=np.zeros(1)), r"unknown tensors \['more'\]"),
        (lambda weights: weights.update({"settings.bias": np.zeros(4, np.float32)}), r"shape \(3,\), got"),
        (lambda weights: weights.update({"settings.bias": np.zeros(3)}), "float32.*got float64"),
        (lambda weights: weights["settings.bias"].fill(np.nan), "not finite"),
    ],
)
def test_weights_that_do_not_fit(change, message):
    weights = random_weights(toy_config())
    change(weights)
    with pytest.raises(AgentError, match=message):
        ConfigurationAgent(toy_config(), weights)
