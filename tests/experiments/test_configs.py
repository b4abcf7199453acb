"""Every shipped configuration is one that its command takes; studies of papers and sweeps have tests of their own."""

import pytest

from corag.cli.main import COMMANDS, make_parser
from corag.models.runtime import Runtime
from corag.optional import load
from tests.paths import ROOT

CONFIGS = ROOT / "experiments" / "configs"
FILES = [path for folder in ("", "adapters") for path in sorted((CONFIGS / folder).glob("*.yaml"))]
OTHERS = {
    "labels": "label", "labels-paper": "label", "labels-llm": "label", "agent": "train agent",
    "agent-paper": "train agent", "fused": "train fused",
}  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_configuration_is_valid(path):
    command = OTHERS.get(path.stem, "train value" if path.parent.name == "adapters" else "evaluate")
    parser = make_parser(command)
    values = vars(parser.instantiate(parser.parse_args(["--config", str(path)])))
    values.pop("config", None)
    assert load(COMMANDS[command].settings)(**values)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"report", "data list", "data get", "list", "doctor"}))
def test_every_command_that_runs_a_model_takes_the_settings_of_the_runtime(name):
    assert issubclass(load(COMMANDS[name].settings), Runtime)
