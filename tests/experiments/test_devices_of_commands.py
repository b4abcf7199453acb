"""The settings of the runtime are on every command that runs a model."""

import dataclasses

import pytest

from corag.cli.main import COMMANDS
from corag.models.runtime import Runtime
from corag.optional import load

FLAGS = {"device", "precision", "trust_remote_code", "batch_tokens", "cache_mb"}
WITHOUT_MODELS = {"report", "data list", "data get", "list", "doctor"}


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WITHOUT_MODELS))
def test_every_command_that_runs_a_model_takes_them(name):
    settings = load(COMMANDS[name].settings)
    assert issubclass(settings, Runtime)
    assert {field.name for field in dataclasses.fields(settings)} >= FLAGS
