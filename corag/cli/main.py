"""The command line `corag`: typed dataclasses are the one source of flags, YAML (`--config`) and help.

Only the modules of the command that is asked for are imported. A mistake of the user prints one line and exits with
status 2; `--debug` before the command shows the traceback.
"""

from __future__ import annotations

import argparse
import atexit
import dataclasses
import gc
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from keyword import iskeyword
from pathlib import Path
from typing import Any, cast, get_type_hints

from rich.logging import RichHandler
from rich.text import Text
from threadpoolctl import ThreadpoolController

from agent.errors import AgentError
from corag.cli.console import say, stderr
from corag.errors import CoragError, DataError, InputError
from corag.naming import hidden
from corag.optional import load
from corag.redaction import hide_secrets
from corag.text.visible import one_line, visible
from search import SearchError

MISTAKE = 2
"""Exit status of a mistake that the user can fix."""
INTERRUPTED = 130

COMMANDS = {
    "demo": ("experiments.demo.run:DemoConfig", "experiments.demo.run:demo"),
    "index": ("corag.cli.index:IndexConfig", "corag.cli.index:run"),
    "ask": ("corag.cli.ask:AskConfig", "corag.cli.ask:run"),
    "chat": ("corag.cli.chat:ChatConfig", "corag.cli.chat:run"),
    "app": ("corag.cli.app:AppConfig", "corag.cli.app:run"),
    "doctor": ("corag.cli.doctor:DoctorConfig", "corag.cli.doctor:run"),
    "list": ("corag.cli.parts:ListConfig", "corag.cli.parts:run"),
    "completion": ("corag.cli.completion:CompletionConfig", "corag.cli.completion:run"),
    "tune": ("experiments.tune.config:TuneConfig", "corag.cli.experiments:tune"),
    "label": ("experiments.labels.config:LabelConfig", "corag.cli.experiments:label"),
    "train": ("experiments.agents.train:TrainAgentConfig", "corag.cli.experiments:train"),
    "sweep": ("experiments.agents.sweep:SweepConfig", "corag.cli.experiments:sweep"),
    "train-adapter": ("experiments.adapters.train:TrainAdapterConfig", "corag.cli.experiments:train_adapter"),
    "evaluate": ("experiments.evaluation.config:EvaluateConfig", "corag.cli.experiments:evaluate"),
    "evaluate-agent": ("experiments.agents.evaluate:EvaluateAgentConfig", "corag.cli.experiments:evaluate_agent"),
    "reproduce": ("experiments.papers.run:ReproduceConfig", "corag.cli.experiments:reproduce"),
    "data-list": ("experiments.data.get:ListConfig", "corag.cli.experiments:data_list"),
    "data-get": ("experiments.data.get:GetConfig", "corag.cli.experiments:data_get"),
    "references": ("experiments.data.references:ReferencesConfig", "corag.cli.experiments:references"),
    "report": ("experiments.report.comparison:ReportConfig", "corag.cli.experiments:report"),
    "bench": ("experiments.bench.run:BenchConfig", "experiments.bench.run:bench"),
}
"""Every command: the dataclass of its settings, and the function that takes them. `data-get` is typed `data get`."""


POSITIONAL = ("ask", "bench", "completion", "data-get", "reproduce")
"""Commands whose setting without a default stands without its name."""
BARE = {"list": ("kind", "part")}
"""Settings that may stand without their names behind a command that needs none of them."""


def make_parser(only: str | None = None) -> Any:
    """Return the parser, with a subcommand for each of `COMMANDS`; with `only`, the others have no settings."""
    from jsonargparse import ArgumentParser

    from corag import __version__

    parser = ArgumentParser(
        prog="corag",
        exit_on_error=False,
        description="Which chunks go into the prompt, how many, and in which order, under a token budget.",
        version=__version__,
    )
    parser.add_argument("--debug", action="store_true", help="Show tracebacks and debug messages.")
    subcommands = parser.add_subcommands(required=True, dest="command")
    for name, (settings, _) in COMMANDS.items():
        if only not in (None, name):
            subcommands.add_subcommand(name, ArgumentParser(exit_on_error=False))
            continue
        settings_type = load(settings)
        summary = (settings_type.__doc__ or "").split("\n", 1)[0]
        own = ArgumentParser(description=summary, exit_on_error=False)
        own.add_argument("--config", action="config", help="YAML file with settings.")
        own.add_class_arguments(settings_type, as_positional=name in POSITIONAL)
        subcommands.add_subcommand(name, own, help=summary)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = arguments[:1] == ["--debug"]
    _seldom_collect_garbage()
    _multiply_on_one_thread()
    _configure_logging(debug)
    try:
        arguments = _joined(arguments)
        command = next((argument for argument in arguments if not argument.startswith("-")), None)
        _check_configs(arguments)
        parser = make_parser(command)
        try:
            parsed = parser.parse_args(_spelt_out(arguments, command))
        except RecursionError as error:
            raise InputError("the settings hold themselves, or are nested too deeply; write them out") from error
        debug = debug or parsed.debug
        settings_type, run = map(load, COMMANDS[parsed.command])
        values = parser.instantiate(_hidden(parsed))[parsed.command]
        values.pop("config", None)
        run(settings_type(**vars(values)))
        sys.stdout.flush()
    except KeyboardInterrupt:
        say("stopped; run the same command again to resume", stderr())
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return MISTAKE
    except (CoragError, AgentError, SearchError, argparse.ArgumentError, OSError) as error:
        if debug:
            raise
        stderr().print(
            Text.assemble(("error:", "bold red"), " ", one_line(hide_secrets(_message(error)))), soft_wrap=True
        )
        return MISTAKE
    return 0


def _joined(arguments: list[str]) -> list[str]:
    """Return the arguments with a command of two words, such as `data get`, as one."""
    place = next((place for place, argument in enumerate(arguments) if not argument.startswith("-")), len(arguments))
    first, second = [*arguments[place : place + 2], "", ""][:2]
    words = [name.removeprefix(f"{first}-") for name in COMMANDS if first and name.startswith(f"{first}-")]
    if first in COMMANDS or not words:
        return arguments
    if second not in words:
        raise InputError(f"corag {first} is followed by {' or '.join(words)}; see corag {first}-{words[0]} --help")
    return [*arguments[:place], f"{first}-{second}", *arguments[place + 2 :]]


def _spelt_out(arguments: Sequence[str], command: str | None) -> list[str]:
    """Return the arguments as the parser knows them.

    `true` is put after each switch that stands alone, as in `--json`; argparse would take the question for its value.
    `--num-candidates` is `--num_candidates`, and `--from`, a word of Python, the setting `from_`.
    """
    arguments = _named(arguments, command)
    switches = {f"--{name}" for name in _switches(load(COMMANDS[command][0]))} if command in COMMANDS else set()
    spelt_out = []
    for argument, following in pairwise([*arguments, ""]):
        if argument.startswith("--"):
            flag, equals, value = argument[2:].partition("=")
            argument = f"--{flag.replace('-', '_')}{'_' * iskeyword(flag)}{equals}{value}"
        spelt_out.append(argument)
        if argument in switches and following.lower() not in ("true", "false"):
            spelt_out.append("true")
    return spelt_out


def _named(arguments: Sequence[str], command: str | None) -> list[str]:
    """Return the arguments with the names of the settings of `BARE` before their values."""
    named = list(arguments)
    if command is None or command not in BARE:
        return named
    at = named.index(command) + 1
    for name in BARE[command]:
        if at >= len(named) or named[at].startswith("-"):
            break
        named.insert(at, f"--{name}")
        at += 2
    return named


def _check_configs(arguments: Sequence[str]) -> None:
    """Raise `DataError` for a settings file that is no text, or names another one; the parser takes it for granted."""
    import yaml  # type: ignore[import-untyped]

    for argument, following in pairwise([*arguments, ""]):
        flag, equals, value = argument.partition("=")
        name = value if equals else following
        if flag != "--config" or not Path(name).is_file():
            continue
        try:
            text = Path(name).read_text(encoding="utf-8")
        except ValueError as error:
            raise DataError(f"--config {name!r} is no text in UTF-8 ({error}); give a YAML file") from error
        content = None
        with suppress(yaml.YAMLError, RecursionError):
            content = yaml.safe_load(text)
        if isinstance(content, Mapping) and "config" in content:
            raise DataError(
                f"--config {name!r} has the setting 'config', under which results hold the settings that made them; "
                "give these alone, in a file of their own"
            )


def _switches(settings_type: type) -> Iterator[str]:
    for name, hint in get_type_hints(settings_type).items():
        if hint is bool:
            yield name
        elif dataclasses.is_dataclass(hint):
            yield from (f"{name}.{inner}" for inner in _switches(cast(type, hint)))


def _seldom_collect_garbage() -> None:
    """Save a tenth of a short command: imports make many objects and no garbage, and at the end all memory goes."""
    gc.set_threshold(50_000, 20, 20)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)  # what is frozen is not looked through once more when Python ends


def _multiply_on_one_thread() -> None:
    """Leave the cores to the models: NumPy's products are small here, and its threads wait for the next one in a loop.

    On two cores that took 5 to 12% of the time of a selection. Whoever sets a number of threads keeps it.
    """
    if not {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} & os.environ.keys():
        ThreadpoolController().select(internal_api="openblas").limit(limits=1)


def _hidden(parsed: Any) -> Any:
    """Return the settings with each part that holds a secret as a `PartName`, so that no record of them shows it."""
    from jsonargparse import Namespace

    for name, value in vars(parsed).items():
        setattr(parsed, name, _hidden(value) if isinstance(value, Namespace) else hidden(value))
    return parsed


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and not isinstance(error, CoragError):
        return f"{error}; check the path, its permissions and the free space"
    if isinstance(error, argparse.ArgumentError):
        return f"{' '.join(str(error).split()).rstrip('.')}; see corag --help, or corag COMMAND --help"
    return str(error)


def _configure_logging(debug: bool) -> None:
    handler = RichHandler(console=stderr(), show_time=False, show_path=debug, markup=False)
    handler.setFormatter(_Visible("%(message)s"))
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, handlers=[handler])
    for package in ("corag", "experiments", "agent"):
        logging.getLogger(package).setLevel(logging.DEBUG if debug else logging.INFO)


class _Visible(logging.Formatter):
    """Shows the control characters of a message."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(hide_secrets(super().format(record)))


if __name__ == "__main__":
    sys.exit(main())
