import json

import pytest

from agent import AgentConfig, AgentError, FixedConfiguration, TrainConfig
from tests.agent.worlds import RANGES, toy_config


@pytest.mark.parametrize(
    "changes", [{}, {"fixed": None}, {"min_lead": 0.5}, {"hidden": (), "features": ("query", "mean")}]
)
def test_round_trip_through_json(changes):
    config = toy_config(**changes)
    assert AgentConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feature_dim": 0}, "feature_dim must be an integer of at least 1, got 0"),
        ({"feature_dim": "6"}, "feature_dim"),
        ({"rerankers": []}, r"rerankers must be a tuple of at least one name, got \(\)"),
        ({"rerankers": ["a", "a"]}, "each name once"),
        ({"rerankers": ["a", ""]}, "non-empty string"),
        ({"rerankers": "ab"}, "rerankers must be a tuple"),
        ({"embedder": None}, "embedder must be a non-empty string"),
        ({"hidden": 5}, "hidden must be a tuple"),
        ({"hidden": [5, 0]}, "every size in hidden"),
        ({"map_dim": True}, "map_dim"),
        ({"ranges": [1, 2]}, "ranges must be a mapping"),
        ({"ranges": {"iterations": [1, 2]}}, r"ranges has missing keys \['cost_weight', 'exploration'\]"),
        ({"surprise": 1}, r"config has unknown keys \['surprise'\]"),
        ({"min_lead": -0.1}, "min_lead must be a finite number of at least 0"),
        ({"min_lead": 1.5}, "min_lead must be between 0 and 1, got 1.5"),
        (
            {"min_lead": 0.5, "fixed": None},
            "min_lead is 0.5, but there is no fixed configuration to keep to; give fixed",
        ),
        ({"rerankers": ["a", "b"]}, "fixed.reranker must be one of a, b; got 'first'"),
    ],
)
def test_bad_values(changes, message):
    with pytest.raises(AgentError, match=message):
        AgentConfig.from_dict({**toy_config().to_dict(), **changes})


def test_a_missing_key():
    values = toy_config().to_dict()
    del values["embedder"]
    with pytest.raises(AgentError, match=r"missing keys \['embedder'\]"):
        AgentConfig.from_dict(values)


def test_min_lead_in_older_checkpoints():
    values = toy_config(min_lead=0.5).to_dict()
    del values["min_lead"]
    assert AgentConfig.from_dict(values).min_lead == 0.0
    assert AgentConfig.from_dict({**values, "caution": 0.25}).min_lead == 0.25


def test_ranges_of_the_wrong_type():
    with pytest.raises(AgentError, match="ranges must be a Ranges"):
        AgentConfig(6, ("a",), {"iterations": (1, 2)}, "toy")


def test_the_papers_training_settings_are_the_defaults():
    config = TrainConfig()
    assert (config.lr, config.batch_size, config.epochs, config.margin) == (1e-3, 32, 60, 1.0)
    paper = AgentConfig(1024, ("a", "b"), RANGES, "bge-m3", fixed=FixedConfiguration("a", 10, 2.4, 0.1))
    assert paper.encoder_shapes == ((1024, 512), (512, 256), (256, 128))


@pytest.mark.parametrize(
    "changes",
    [
        {"lr": 0},
        {"lr": float("nan")},
        {"batch_size": 1},
        {"epochs": 0},
        {"margin": -1.0},
        {"settings_weight": -0.1},
        {"contrastive_weight": 0, "reranker_weight": 0, "settings_weight": 0},
        {"seed": -1},
        {"optimizer": "lion"},
        {"patience": 0},
        {"keep": "first"},
        {"accelerator": ""},
        {"strategy": " "},
        {"devices": 0},
        {"num_nodes": 0},
        {"regret_weight": -1.0},
        {"temperature": -0.1},
        {"precision": "16-mixed"},
        {"logger": "tensorboard"},
    ],
)
def test_bad_training_settings(changes):
    name = next(iter(changes)) if len(changes) == 1 else "all loss weights"
    with pytest.raises(AgentError, match=name):
        TrainConfig(**changes)
