"""The command line `corag`: typed dataclasses are the one source of flags, YAML (`--config`) and help.

Only the modules of the command that is asked for are imported. A mistake of the user prints one line and exits with
status 2; `--debug` before the command shows the traceback.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from keyword import iskeyword
from pathlib import Path
from typing import Any, NamedTuple, cast, get_type_hints

from rich.logging import RichHandler
from rich.text import Text
from threadpoolctl import ThreadpoolController

from agent.errors import AgentError
from corag.cli.console import say, stderr
from corag.errors import CoragError, DataError, InputError
from corag.naming import hidden, nearest
from corag.optional import load
from corag.redaction import hide_secrets
from corag.text.visible import one_line, visible
from corag.yaml_aliases import refuse_aliases
from search import SearchError

MISTAKE = 2
"""Exit status of a mistake that the user can fix."""
INTERRUPTED = 130


class Command(NamedTuple):
    """A command.

    Attributes:
        does: What it does, for the list of commands.
        settings: The dataclass of its settings, as `module:attribute`.
        run: The function that takes them.
        shown: The settings that `--help` shows; `--help-all` shows the rest, too.
        bare: Settings that may stand without their names, in this order.
    """

    does: str
    settings: str
    run: str
    shown: str = ""
    bare: str = ""


ANSWERING = "index budget method agent unit reranker reader tokenizer device"
COMMANDS = {
    "demo": Command(
        "run everything on the Python language reference",
        "experiments.demo.run:DemoConfig",
        "experiments.demo.run:demo",
        "out budgets limit num_candidates logger device",
    ),
    "data list": Command(
        "list the public data sets", "experiments.data.get:DataListConfig", "experiments.data.get:list_data"
    ),
    "data get": Command(
        "download one as a data folder", "experiments.data.get:GetConfig", "corag.cli.experiments:data_get", bare="name"
    ),
    "data references": Command(
        "have a reader write reference answers from gold passages",
        "experiments.data.references:ReferencesConfig",
        "corag.cli.experiments:references",
        "data out reader splits limit budget device",
    ),
    "index": Command(
        "index a folder of documents, or update its index",
        "corag.cli.index:IndexConfig",
        "corag.cli.index:run",
        "data out max_tokens overlap_tokens embedder tokenizer overwrite tree states device",
    ),
    "ask": Command(
        "answer one question from an index, under a token budget",
        "corag.cli.ask:AskConfig",
        "corag.cli.ask:run",
        f"question {ANSWERING} json",
        bare="question",
    ),
    "chat": Command("answer several questions in a row", "corag.cli.chat:ChatConfig", "corag.cli.chat:run", ANSWERING),
    "app": Command(
        "show the search on a local page",
        "corag.cli.app:AppConfig",
        "corag.cli.app:run",
        "index data split budget reranker agent reader tokenizer port open",
    ),
    "serve": Command(
        "serve reranking and selecting over HTTP, or as tools of an assistant",
        "corag.cli.serve:ServeConfig",
        "corag.cli.serve:run",
        "index budget method agent tokenizer host port mcp device",
    ),
    "tune": Command(
        "adapt the agent to your own questions",
        "experiments.tune.config:TuneConfig",
        "corag.cli.experiments:tune",
        "data out budget splits pool reader prefer configurations limit device",
    ),
    "label": Command(
        "measure every configuration on every question",
        "experiments.labels.config:LabelConfig",
        "corag.cli.experiments:label",
        "data splits out budget configurations cost_weights reader pool limit device",
    ),
    "train agent": Command(
        "train the agent on label tables",
        "experiments.agents.train:TrainAgentConfig",
        "corag.cli.experiments:train",
        "labels out target training.epochs training.lr training.batch_size training.seed logger device",
    ),
    "train value": Command(
        "train a reranker for combinations",
        "experiments.adapters.config:ValueTraining",
        "corag.cli.experiments:train_adapter",
        "name data out sources max_size fit seed logger device",
    ),
    "train cross": Command(
        "train the cross-encoder",
        "experiments.adapters.config:CrossTraining",
        "corag.cli.experiments:train_adapter",
        "data out sources calibration epochs learning_rate seed logger device",
    ),
    "train reader": Command(
        "train the extractive reader",
        "experiments.adapters.config:ReaderTraining",
        "corag.cli.experiments:train_adapter",
        "data out sources rows epochs seed logger device",
    ),
    "sweep": Command(
        "train agents with every combination of some settings",
        "experiments.agents.sweep:SweepConfig",
        "corag.cli.experiments:sweep",
        "base.labels out vary seeds",
    ),
    "evaluate": Command(
        "compare methods on a data folder",
        "experiments.evaluation.config:EvaluateConfig",
        "corag.cli.experiments:evaluate",
        "data split methods budget pool reranker agent reader limit sample out device",
    ),
    "report": Command(
        "show results of evaluate together",
        "experiments.report.run:ReportConfig",
        "corag.cli.experiments:report",
        "results out title",
    ),
    "reproduce": Command(
        "reproduce tables and figures of the papers",
        "experiments.papers.run:ReproduceConfig",
        "experiments.papers.run:reproduce",
        "name out only standin limit logger device",
        bare="name",
    ),
    "bench": Command(
        "measure speed",
        "experiments.bench.run:BenchConfig",
        "experiments.bench.run:bench",
        "part out rounds data methods budget questions device",
        bare="part",
    ),
    "list": Command(
        "list all parts, or the settings of one",
        "corag.cli.parts:ListConfig",
        "corag.cli.parts:run",
        bare="kind part",
    ),
    "doctor": Command("show what is installed and available", "corag.cli.doctor:DoctorConfig", "corag.cli.doctor:run"),
}
"""Every command, also those of two words."""

DEFAULT_WORD = {"train": "agent"}
"""What the first word of a command alone stands for."""


def make_parser(name: str, *, all_settings: bool = True) -> Any:
    """Return the parser of a command; its help hides what is not `shown`, unless it is to have all settings."""
    from jsonargparse import ArgumentParser

    _refuse_aliases_in_settings()
    command = COMMANDS[name]
    settings = load(command.settings)
    parser = ArgumentParser(
        prog=f"corag {name}",
        exit_on_error=False,
        description=(settings.__doc__ or "").split("\n", 1)[0],
    )
    parser.add_argument("--config", action="config", help="YAML file with settings.")
    parser.add_argument("--help-all", action="help", help="Show all settings and exit.")
    parser.add_class_arguments(settings, as_positional=_is_required(settings, command.bare))
    shown = {"config", "help", "help_all", *command.shown.split()}
    if command.shown and not all_settings:
        for action in parser._actions:
            if action.dest not in shown and action.option_strings:
                action.help = argparse.SUPPRESS
    return parser


@cache
def _refuse_aliases_in_settings() -> None:
    """Have jsonargparse refuse aliases, in settings and in the files that they name."""
    from jsonargparse import get_loader, set_loader
    from yaml import YAMLError  # type: ignore[import-untyped]

    load_yaml = get_loader("yaml")

    def load_without_aliases(text: str) -> Any:
        refuse_aliases(text)
        return load_yaml(text)

    set_loader("yaml", load_without_aliases, exceptions=(YAMLError,))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if debug := arguments[:1] == ["--debug"]:
        del arguments[0]
    _multiply_on_one_thread()
    _configure_logging(debug=debug)
    try:
        if not arguments or arguments[0] in ("--help", "-h", "--version"):
            return _show_commands(arguments)
        name, arguments = _command_of(arguments)
        settings = _parsed(name, arguments)
        load(COMMANDS[name].run)(settings)
        sys.stdout.flush()
    except KeyboardInterrupt:
        say("stopped; run the same command again to resume", stderr())
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return MISTAKE
    except (CoragError, AgentError, SearchError, OSError) as error:
        if debug:
            raise
        said = one_line(hide_secrets(_message(error)))
        stderr().print(Text.assemble(("error:", "bold red"), " ", said), soft_wrap=True)
        return MISTAKE
    return 0


def _parsed(name: str, arguments: Sequence[str]) -> Any:
    """Return the settings of a command; parts that hold secrets are `PartName`s, so that no record shows them."""
    _check_configs(arguments)
    parser = make_parser(name, all_settings="--help-all" in arguments)
    try:
        parsed = vars(parser.instantiate(parser.parse_args(_spelt_out(arguments, COMMANDS[name]))))
    except RecursionError as error:
        raise InputError("the settings are nested too deeply; write them out") from error
    except argparse.ArgumentError as error:
        raise InputError(_parse_error(error, name)) from error
    del parsed["config"]
    return load(COMMANDS[name].settings)(**{setting: hidden(value) for setting, value in parsed.items()})


def _parse_error(error: argparse.ArgumentError, name: str) -> str:
    """Return what is wrong with the arguments of a command: for a wrong value the setting, the value and its help."""
    text = " ".join(str(error).split()).rstrip(".")
    wrong = re.match(r'Parser key "([\w.]+)": .*(?:Given value|Got value): (.*)', text)
    action = next((action for action in make_parser(name)._actions if wrong and action.dest == wrong[1]), None)
    if wrong is None or action is None:
        return f"{text}; see corag {name} --help-all"
    kind = getattr(action, "_typehint", None) or action.type
    written = kind.__name__ if type(kind) is type else re.sub(r"^typing\.Optional\[(.*)]$", r"\1", str(kind))
    written = written.replace("typing.", "")
    return f"--{wrong[1]} is {wrong[2]!r}, which is not a valid {written}; {wrong[1]}: {action.help}"


def _show_commands(arguments: Sequence[str]) -> int:
    """Print all commands, or the version."""
    from corag import __version__

    if "--version" in arguments:
        say(f"corag {__version__}")
        return 0
    if not arguments:
        raise InputError("name a command; see corag --help")
    say("usage: corag [--debug] COMMAND [settings]\n")
    say("Which chunks go into the prompt, how many, and in which order, under a token budget.\n")
    for name, command in COMMANDS.items():
        say(f"  {name:<16} {command.does}")
    say("\ncorag COMMAND --help shows the main settings, --help-all all of them.")
    return 0


def _command_of(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command that arguments begin with, and the arguments behind it."""
    first, *rest = arguments
    words = [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{first} ")]
    if words:
        second = rest.pop(0) if rest and not rest[0].startswith("-") else DEFAULT_WORD.get(first, "")
        if second not in words:
            raise InputError(f"corag {first} is followed by {', '.join(words)}; see corag {first} {words[0]} --help")
        return f"{first} {second}", rest
    if first not in COMMANDS:
        raise InputError(f"there is no command {first!r}{nearest(first, COMMANDS)}; see corag --help")
    return first, rest


def _spelt_out(arguments: Sequence[str], command: Command) -> list[str]:
    """Return the arguments as the parser knows them.

    `true` is put after each switch that stands alone, as in `--json`; argparse would take the question for its value.
    `--num-candidates` is `--num_candidates`, and `--from`, a word of Python, the setting `from_`.
    """
    settings = load(command.settings)
    names = [] if _is_required(settings, command.bare) else command.bare.split()
    num_bare = next((at for at, argument in enumerate(arguments) if argument.startswith("-")), len(arguments))
    named = [f"--{name}={value}" for name, value in zip(names, arguments[:num_bare], strict=False)]
    arguments = [*named, *arguments[len(named) :]]
    switches = {f"--{name}" for name in _switches(settings)}
    spelt_out = []
    for argument, following in pairwise([*arguments, ""]):
        if argument.startswith("--") and argument != "--help-all":
            flag, equals, value = argument[2:].partition("=")
            argument = f"--{flag.replace('-', '_')}{'_' * iskeyword(flag)}{equals}{value}"
        spelt_out.append(argument)
        if argument in switches and following.lower() not in ("true", "false"):
            spelt_out.append("true")
    return spelt_out


def _is_required(settings: type, name: str) -> bool:
    """Return whether a setting has no default, so that the parser accepts it without its name."""
    parameter = inspect.signature(settings).parameters.get(name)
    return parameter is not None and parameter.default is parameter.empty


def _check_configs(arguments: Sequence[str]) -> None:
    """Raise `DataError` for a settings file that does not exist, is not text, has no settings or names another one."""
    import yaml

    for argument, following in pairwise([*arguments, ""]):
        flag, equals, value = argument.partition("=")
        name = value if equals else following
        if flag != "--config":
            continue
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (ValueError, OSError) as error:
            raise DataError(f"--config {name!r} cannot be read ({error}); give a YAML file in UTF-8") from error
        try:
            refuse_aliases(text)
            content = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError):
            continue  # the parser says what is wrong with it
        if not isinstance(content, Mapping):
            raise DataError(f"--config {name!r} has no settings; write one on each line, such as budget: 256")
        if "config" in content:
            raise DataError(
                f"--config {name!r} has the setting 'config', under which results have the settings that made them; "
                "give these alone, in a separate file"
            )


def _switches(settings_type: type) -> Iterator[str]:
    for name, hint in get_type_hints(settings_type).items():
        if hint is bool:
            yield name
        elif dataclasses.is_dataclass(hint):
            yield from (f"{name}.{inner}" for inner in _switches(cast(type, hint)))


def _multiply_on_one_thread() -> None:
    """Leave the cores to the models: NumPy's products are small here, and its threads wait for the next one in a loop.

    On two cores that took 5 to 12% of the time of a selection. Whoever sets a number of threads keeps it.
    """
    if not {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} & os.environ.keys():
        ThreadpoolController().select(internal_api="openblas").limit(limits=1)


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and not isinstance(error, CoragError):
        return f"{error}; check the path, its permissions and the free space"
    return str(error)


def _configure_logging(*, debug: bool) -> None:
    handler = RichHandler(console=stderr(), show_time=False, show_path=debug, markup=False)
    handler.setFormatter(_Visible("%(message)s"))
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, handlers=[handler])
    for package in ("corag", "experiments", "agent"):
        logging.getLogger(package).setLevel(logging.DEBUG if debug else logging.INFO)


class _Visible(logging.Formatter):
    """Shows the control characters of a message, and none of its secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(hide_secrets(super().format(record)))


if __name__ == "__main__":
    sys.exit(main())
