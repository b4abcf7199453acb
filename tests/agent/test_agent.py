"""Ranges, configurations, predictions and checkpoints of agents; no torch."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import agent
from agent import AgentConfig, Configuration, ConfigurationAgent, Ranges
from common.configuration import parse
from common.errors import ModelError
from tests.agent.worlds import DIM, RANGES, random_agent, random_weights, toy_config
from tests.paths import ROOT

FEATURES = np.random.default_rng(1).normal(size=(50, DIM)).astype(np.float32)
LN_3 = np.log(3) * np.eye(DIM)[0]
PAPERS = "corag(unit=passage, reranker=cross-encoder(model=a/b, max_tokens=9))"


def agent_that_passes_one_feature_on(**changes):
    """Map = (relu(x0),), logits = (0, map), settings = sigmoid(0) = half of each range."""
    config = toy_config(hidden=(), map_dim=1, **changes)
    weights = {name: np.zeros(shape, np.float32) for name, shape in config.tensor_shapes.items()}
    weights["encoder.0.weight"][0, 0] = 1.0
    weights["choice.weight"][1, 0] = 1.0
    return ConfigurationAgent(config, weights)


def test_the_unit_scale_worked_by_hand():
    # 20 is half-way from 10 to 40 on a log scale.
    ranges = Ranges((10, 40), (1.0, 3.0), (0.1, 0.5))
    settings = np.array([[20, 1.5, 0.2], [10, 1.0, 0.1], [40, 3.0, 0.5]])
    expected = [[0.5, 0.25, 0.25], [0, 0, 0], [1, 1, 1]]
    np.testing.assert_allclose(ranges.to_unit(settings), expected, atol=1e-12)
    np.testing.assert_allclose(ranges.from_unit(expected), settings, atol=1e-12)
    one_value = Ranges((10, 10), (2.4, 2.4), (0.1, 0.1))
    assert one_value.to_unit([[10, 2.4, 0.1]]).tolist() == [[0.0, 0.0, 0.0]]
    assert one_value.from_unit([[0.7, 0.0, 1.0]]).tolist() == [[10, 2.4, 0.1]]


def test_a_configuration_is_spelled_with_the_settings_of_its_search():
    assert Configuration("corag").with_search() == "corag"
    assert Configuration("corag").with_search(5, 0.3, 0.1) == (
        'corag(search={"policy": "paper", "iterations": 5, "exploration": 0.3}, cost_weight=0.1)'
    )
    whole = parse(PAPERS).with_search(2, 0.12345, 0.0)
    assert whole.startswith(PAPERS[:-1] + ", search={") and whole.endswith('"exploration": 0.1235}, cost_weight=0.0)')
    assert (whole.settings["reranker"], whole.settings["unit"]) == ("cross-encoder(model=a/b, max_tokens=9)", "passage")
    assert (whole.settings["cost_weight"], whole.settings["search"]["iterations"]) == (0.0, 2)
    assert parse('corag(search={"max_scored": 60})').with_search(5, 0.3) == (
        'corag(search={"max_scored": 60, "policy": "paper", "iterations": 5, "exploration": 0.3})'
    )


def test_a_prediction_worked_by_hand():
    prediction = agent_that_passes_one_feature_on().predict(LN_3)
    assert (prediction.iterations, prediction.exploration) == (8, 1.5)
    assert prediction.probabilities == pytest.approx({"first": 0.25, "second": 0.75})
    # A tie goes to the first label.
    assert agent_that_passes_one_feature_on().predict(-np.ones(DIM)).configuration == "first"
    assert [type(value) for value in (prediction.iterations, prediction.exploration)] == [int, float]


@pytest.mark.parametrize(("min_lead", "chosen"), [(0.0, "second"), (0.49, "second"), (0.51, "first"), (1.0, "first")])
def test_the_fallback_is_kept_where_the_lead_is_small(min_lead, chosen):
    # Probabilities 0.25 and 0.75: a lead of 0.5 over "first", the fallback.
    trained = agent_that_passes_one_feature_on(min_lead=min_lead)
    prediction = trained.predict(LN_3)
    settings = (prediction.iterations, prediction.exploration, prediction.cost_weight)
    assert (prediction.configuration, prediction.fell_back) == (chosen, chosen == "first")
    assert settings == pytest.approx((10, 2.4, 0.1) if chosen == "first" else (8, 1.5, 0.15))


def test_an_agent_without_a_network_names_its_fallback():
    one, two = ConfigurationAgent(AgentConfig((PAPERS, "top-k"), "top-k")).predict(np.zeros((2, 0)))
    assert str(one) == str(two) == "top-k" and one.probabilities == {PAPERS: 0.0, "top-k": 1.0}


@given(hnp.arrays(np.float32, DIM, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_settings_stay_in_range_for_any_finite_features(features):
    prediction = random_agent(scale=5.0).predict(features)
    assert RANGES.iterations[0] <= prediction.iterations <= RANGES.iterations[1]
    assert RANGES.exploration[0] <= prediction.exploration <= RANGES.exploration[1]
    assert RANGES.cost_weight[0] <= prediction.cost_weight <= RANGES.cost_weight[1]
    assert sum(prediction.probabilities.values()) == pytest.approx(1.0)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "made" / "on-demand"
    agent.save(path, random_agent(), agent.model_card(toy_config(), {"commit": "abc123"}))
    return path


@pytest.mark.parametrize("changes", [{}, {"ranges": None}, {"min_lead": 0.5}])
def test_a_checkpoint_comes_back(tmp_path, changes):
    config = toy_config(**changes)
    trained = ConfigurationAgent(config, {name: of[::-1] for name, of in random_weights(config).items()})
    agent.save(tmp_path / "made", trained, agent.model_card(trained.config, {"commit": "abc123"}, "## More"))
    loaded = agent.load(str(tmp_path / "made"))
    assert loaded.config == trained.config
    assert loaded.predict(FEATURES) == trained.predict(FEATURES)
    card = (tmp_path / "made" / "README.md").read_text()
    assert all(word in card for word in ("`toy`", "`first`, `second`", "abc123", "## More"))


def test_nothing_but_a_checkpoint_is_replaced(folder, tmp_path):
    (folder / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("")
    for path in (folder, tmp_path / "file"):
        with pytest.raises(ModelError):
            agent.save(path, random_agent(), "")
    assert (folder / "thesis.tex").exists()


def test_an_edited_card_is_sealed_again(folder):
    with (folder / "README.md").open("a") as card:
        card.write("More.\n")
    with pytest.raises(ModelError, match=r"README\.md"):
        agent.load(folder)
    subprocess.run([sys.executable, "-m", "common.storage", folder], check=True, cwd=ROOT)
    assert agent.load(folder).config == toy_config()


def test_an_agent_comes_from_the_hub(folder, monkeypatch):
    asked = []
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **settings: asked.append(name) or str(folder))
    assert agent.from_hub("me/agent").config == toy_config() and asked == ["me/agent"]
