"""Every shipped configuration is one that its command takes; studies of papers have tests of their own."""

import pytest

from corag.cli.main import COMMANDS, make_parser
from corag.models.runtime import Runtime
from corag.optional import load
from tests.paths import ROOT

CONFIGS = ROOT / "experiments" / "configs"
FILES = [path for folder in ("", "ablations", "adapters") for path in sorted((CONFIGS / folder).glob("*.yaml"))]
OTHERS = {
    "labels": "label", "labels-paper": "label", "labels-search": "label", "agent": "train agent",
    "reader": "train reader", "cross": "train cross",
}  # fmt: skip
OF_FOLDER = {"ablations": "sweep", "adapters": "train value"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_configuration_is_valid(path):
    if path.stem == "search":
        return  # studies for `corag reproduce`
    command = OTHERS.get(path.stem) or OF_FOLDER.get(path.parent.name, "evaluate")
    parser = make_parser(command)
    values = vars(parser.instantiate(parser.parse_args(["--config", str(path)])))
    values.pop("config", None)
    assert load(COMMANDS[command].settings)(**values)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"report", "data list", "data get", "list"}))
def test_every_command_that_runs_a_model_takes_the_settings_of_the_runtime(name):
    assert issubclass(load(COMMANDS[name].settings), Runtime)
