"""The settings of the runtime: on every command that runs a model, and on the training of agents."""

import dataclasses

import pytest

import agent
import corag
from corag.cli.main import COMMANDS
from corag.errors import InputError
from corag.models import runtime
from corag.models.runtime import Runtime
from corag.optional import load

FLAGS = {"device", "precision", "trust_remote_code", "batch_tokens", "cache_mb"}
WITHOUT_MODELS = {"report", "data list", "data get", "list", "doctor"}


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WITHOUT_MODELS))
def test_every_command_that_runs_a_model_takes_them(name):
    settings = load(COMMANDS[name].settings)
    assert issubclass(settings, Runtime)
    assert {field.name for field in dataclasses.fields(settings)} >= FLAGS


@pytest.fixture
def placed(monkeypatch):
    pytest.importorskip("lightning")
    from experiments.agents.train import placed

    monkeypatch.setattr(runtime, "check_devices", lambda devices: None)
    return placed


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        ({"device": "cpu"}, {"accelerator": "cpu"}),
        ({"device": "cuda:1"}, {"accelerator": "cuda", "devices": (1,)}),
        ({"device": "cuda:0,cuda:2"}, {"accelerator": "cuda", "devices": (0, 2)}),
        ({"device": "mps", "precision": "bf16"}, {"accelerator": "mps", "precision": "bf16-mixed"}),
        ({"precision": "fp32"}, {}),
    ],
)
def test_agents_are_trained_where_models_run(placed, settings, expected):
    training = agent.TrainConfig(epochs=3)
    with corag.runtime(**settings):
        assert placed(training) == dataclasses.replace(training, **expected)


def test_what_a_training_says_itself_stays(placed):
    training = agent.TrainConfig(accelerator="cpu")
    with corag.runtime(device="cuda:1"):
        assert placed(training) == training


def test_agents_are_not_trained_in_fp16(placed):
    with corag.runtime(precision="fp16"), pytest.raises(InputError, match="agents are trained in fp32 or bf16"):
        placed(agent.TrainConfig())


def test_a_training_may_name_its_devices():
    assert agent.TrainConfig(devices=(1, 3)).devices == (1, 3)
    for devices in ((), (-1,), (True,), 0):
        with pytest.raises(agent.AgentError, match="devices"):
            agent.TrainConfig(devices=devices)
