"""The command line `corag`: typed dataclasses are the one source of flags, YAML (`--config`) and help.

Only the modules of the command that is asked for are imported. A mistake of the user prints one line and exits with
status 2; `--debug` before the command shows the traceback.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import logging
import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from rich.text import Text

from corag import __version__
from corag.cli.console import say, stderr
from corag.errors import CoragError, InputError
from corag.optional import load
from corag.registry import nearest
from corag.text.visible import one_line, visible

MISTAKE = 2
"""Exit status of a mistake that the user can fix."""
INTERRUPTED = 130


class Command(NamedTuple):
    """A command.

    Attributes:
        summary: What it does, for the list of commands.
        settings: The dataclass of its settings, as `module:attribute`.
        run: The function that takes them.
        shown: The settings that `--help` shows; `--help-all` shows the rest, too.
        positional: Settings that may be given without their names, in this order.
    """

    summary: str
    settings: str
    run: str
    shown: str = ""
    positional: str = ""


ANSWERING = "index budget method reranker reader tokenizer device"
COMMANDS = {
    "demo": Command(
        "run everything on the Python language reference",
        "experiments.demo.run:DemoConfig",
        "experiments.demo.run:demo",
        "out limit logger device",
    ),
    "data list": Command(
        "list the public data sets", "experiments.data.get:DataListConfig", "experiments.data.get:list_data"
    ),
    "data get": Command(
        "download one as a data folder",
        "experiments.data.get:GetConfig",
        "experiments.data.get:get_data",
        positional="name",
    ),
    "data references": Command(
        "have a reader write reference answers from gold passages",
        "experiments.data.references:ReferencesConfig",
        "experiments.data.references:write_references",
        "data out reader splits limit budget device",
    ),
    "index": Command(
        "index a folder of documents, or update its index",
        "corag.cli.index:IndexConfig",
        "corag.cli.index:run",
        "data out max_tokens overlap_tokens embedder tokenizer overwrite tree device",
    ),
    "ask": Command(
        "answer one question from an index, under a token budget",
        "corag.cli.ask:AskConfig",
        "corag.cli.ask:run",
        f"question {ANSWERING} page json",
        positional="question",
    ),
    "chat": Command(
        "answer several questions in a row", "corag.cli.ask:ChatConfig", "corag.cli.ask:run_chat", ANSWERING
    ),
    "serve": Command(
        "serve reranking and selecting over HTTP, or as tools of an assistant",
        "corag.cli.serve:ServeConfig",
        "corag.cli.serve:run",
        "index budget method tokenizer host port mcp device",
    ),
    "tune": Command(
        "fit the value to your own questions, and choose a configuration by them",
        "experiments.tune:TuneConfig",
        "experiments.tune:tune",
        "data out budget splits pool keep signals configurations limit device",
    ),
    "label": Command(
        "measure every configuration on every question",
        "experiments.labels.config:LabelConfig",
        "experiments.labels.label:show",
        "data splits out budget configurations cost_weights reader pool limit device",
    ),
    "train agent": Command(
        "train the agent on label tables",
        "experiments.agents.train:TrainAgentConfig",
        "experiments.agents.train:train",
        "labels out target training.epochs training.lr training.batch_size training.seed logger device",
    ),
    "train fused": Command(
        "train the value that fuses several rerankers",
        "experiments.adapters.config:FusedTraining",
        "experiments.adapters.fused:train_fused",
        "data out sources signals logger device",
    ),
    "train value": Command(
        "train a reranker for combinations",
        "experiments.adapters.config:ValueTraining",
        "experiments.adapters.value:train_value",
        "data out sources epochs seed logger device",
    ),
    "sweep": Command(
        "train agents with every combination of some settings",
        "experiments.agents.sweep:SweepConfig",
        "experiments.agents.sweep:sweep",
        "base out vary seeds",
    ),
    "evaluate": Command(
        "compare methods on a data folder",
        "experiments.evaluation.config:EvaluateConfig",
        "experiments.evaluation.comparison:show",
        "data split methods budget pool reranker reader limit out device",
    ),
    "report": Command(
        "show results of evaluate together",
        "experiments.report.comparison:ReportConfig",
        "experiments.report.comparison:report",
        "results out",
        positional="results",
    ),
    "reproduce": Command(
        "reproduce tables and figures of the papers",
        "experiments.papers.run:ReproduceConfig",
        "experiments.papers.run:reproduce",
        "name out only standin limit logger device",
        positional="name",
    ),
    "bench": Command(
        "measure speed",
        "experiments.bench:BenchConfig",
        "experiments.bench:bench",
        "part out rounds data methods budget questions device",
        positional="part",
    ),
    "list": Command(
        "list all parts, or the settings of one",
        "corag.cli.parts:ListConfig",
        "corag.cli.parts:run",
        positional="kind part",
    ),
    "doctor": Command(
        "show installed packages, devices, models, data and servers",
        "corag.cli.doctor:DoctorConfig",
        "corag.cli.doctor:run",
    ),
}
"""Every command, also those of two words."""
_GROUPS = [["data"], ["train"]]
DEFAULT_SUBCOMMAND = {"train": "agent"}
"""The second word of a command, if only the first is given."""


def make_parser(name: str, *, all_settings: bool = True) -> Any:
    """Return the parser of a command; its help hides what is not `shown`, unless it is to have all settings."""
    from jsonargparse import ArgumentParser, DefaultHelpFormatter

    from corag.cli.help import BriefHelpFormatter

    restrict_settings()
    command = COMMANDS[name]
    settings = load(command.settings)
    parser = ArgumentParser(
        prog=f"corag {name}",
        allow_abbrev=False,
        usage=" ".join(["corag", name, *(f"[{word}]" for word in command.positional.split()), "[settings]"]),
        exit_on_error=False,
        formatter_class=DefaultHelpFormatter if all_settings else BriefHelpFormatter,
        description=(settings.__doc__ or "").split("\n", 1)[0],
    )
    parser.add_argument("--config", action="config", help="YAML file with settings.")
    parser.add_argument("--help-all", action="help", help="Show all settings and exit.")
    parser.add_class_arguments(settings, skip={"batch_tokens"})  # batches that are too large are halved
    for group in parser._action_groups:
        # jsonargparse would print the description again.
        group.title = "settings" if f"{group.title}." == parser.description else group.title
    if not all_settings:
        shown = [*("help", "config", "help_all"), *command.shown.split()]
        for action in parser._actions:
            if action.dest == "print_config" or (command.shown and action.dest not in shown):
                action.help = argparse.SUPPRESS
        for group in parser._action_groups:
            group._group_actions.sort(key=lambda action: shown.index(action.dest) if action.dest in shown else 99)
    return parser


@cache
def restrict_settings() -> None:
    """Have jsonargparse import nothing for a value; by default it makes objects of classes named by `class_path`."""
    from jsonargparse import set_parsing_settings

    # Of this project, because lists of dataclasses are read by the names of their classes.
    own = ["agent", "corag", "experiments"]
    set_parsing_settings(instantiate_subclass_spec_in_any=False, import_path_denylist=["*"], import_path_allowlist=own)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if debug := arguments[:1] == ["--debug"]:
        del arguments[0]
    _limit_blas_threads()
    _configure_logging(debug=debug)
    gc.freeze()  # no collection looks through what was imported; the last one, at the end, through nothing
    atexit.register(gc.freeze)
    try:
        if arguments[:1] == ["--version"]:
            say(f"corag {__version__}")
        elif arguments[-1:] in (["--help"], ["-h"]) and (first := arguments[:-1]) in ([], *_GROUPS):
            _show_commands(first)
        else:
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
    except (CoragError, OSError) as error:
        if debug:
            raise
        of_system = isinstance(error, OSError) and not isinstance(error, CoragError)
        remedy = "; check the path, its permissions and the free space" if of_system else ""
        message = one_line(f"{error}{remedy}")
        stderr().print(Text.assemble(("error:", "bold red"), " ", message), soft_wrap=True)
        return MISTAKE
    return 0


def _parsed(name: str, arguments: Sequence[str]) -> Any:
    """Return the settings of a command."""
    parser = make_parser(name, all_settings="--help-all" in arguments)
    try:
        parsed = vars(parser.instantiate(parser.parse_args(_normalised(arguments, parser, COMMANDS[name].positional))))
    except InputError:
        raise
    except (argparse.ArgumentError, ValueError, RecursionError) as error:
        raise InputError(f"{_what_is_wrong(error, name)}; see corag {name} --help-all") from error
    del parsed["config"]
    return load(COMMANDS[name].settings)(**parsed)


def _what_is_wrong(error: Exception, command: str) -> str:
    """Return the message of the parser in one line, with the setting that may be meant."""
    text = " ".join(str(error).split())
    what, _, said = text.partition(": ")
    if what.strip('":').endswith("config") or isinstance(error, UnicodeDecodeError):
        return f"config: expected a YAML file of settings, a line each, such as `budget: 512`; {said or 'it is empty'}"
    unknown = text.removeprefix("unrecognized arguments: ").split()
    if unknown and unknown[0].startswith("--") and not text.startswith("--"):
        names = [action.dest for action in make_parser(command)._actions]
        return f"{text}{nearest(unknown[0].removeprefix('--').partition('=')[0], names)}"
    # As jsonargparse says it: key "name": Expected ... Literal['one', 'other'] ... Got value: given
    name, given = text.partition('key "')[2].partition('"')[0], text.rpartition(" value: ")[2]
    if not name or given == text:
        return text
    known = text.partition("Literal[")[2].partition("]")[0].replace("'", "")
    rule = f"it must be one of {known}" if known else "it cannot be read as that setting"
    [says] = [action.help for action in make_parser(command)._actions if action.dest == name] or [""]
    return f"{name} is {given!r}; {rule}. {says}".rstrip(" .")


def _show_commands(first_word: Sequence[str]) -> None:
    """Print all commands, or those that begin with a word."""
    shown = {name: one.summary for name, one in COMMANDS.items() if not first_word or name.split()[:1] == first_word}
    say("usage: corag [--debug] COMMAND [settings]\n")
    say("Which chunks go into the prompt, how many, and in which order, under a token budget.\n")
    for name, summary in shown.items():
        say(f"  {name:<{max(map(len, shown))}}  {summary}")
    say("\ncorag COMMAND --help shows the main settings, --help-all all of them.")


def _command_of(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command that arguments begin with, and the arguments behind it."""
    if not arguments:
        raise InputError("name a command; see corag --help")
    first, *rest = arguments
    if words := [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{first} ")]:
        second = rest.pop(0) if rest and not rest[0].startswith("-") else DEFAULT_SUBCOMMAND.get(first, "")
        if second not in words:
            raise InputError(f"corag {first} is followed by {', '.join(words)}; see corag {first} --help")
        return f"{first} {second}", rest
    if first not in COMMANDS:
        names = {name.partition(" ")[0] for name in COMMANDS}
        raise InputError(f"unknown command {first!r}{nearest(first, names)}; see corag --help")
    return first, rest


def _normalised(arguments: Sequence[str], parser: Any, positional: str) -> list[str]:
    """Return the arguments as the parser knows them.

    A word that follows no option is one of the `positional` settings. A switch without a value is true.
    `--num-candidates` is `--num_candidates`.
    """
    types = {flag: getattr(action, "_typehint", None) for action in parser._actions for flag in action.option_strings}
    names, words = positional.split(), list(arguments)
    normalised = []
    while words:
        word = words.pop(0)
        if not word.startswith("--") and word != "-h":
            normalised.append(f"--{names.pop(0)}={word}" if names else word)
            continue
        flag, equals, value = word[2:].partition("=")
        if word != "--help-all":
            flag = flag.replace("-", "_")
            word = f"--{flag}{equals}{value}"
        normalised.append(word)
        kind = types.get(f"--{flag}")
        if kind is bool and not equals and not (words and words[0].lower() in ("true", "false")):
            normalised.append("true")
        elif words and not equals and not words[0].startswith("--"):
            normalised.append(words.pop(0))
    return normalised


def _limit_blas_threads() -> None:
    """Leave the cores to the models: NumPy's products are small here, and its idle threads spin.

    On two cores that took 5 to 12% of the time of a selection. A number of threads that the user sets is kept.
    """
    if not {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} & os.environ.keys():
        # Imported here, as it sets a variable of the environment.
        load("threadpoolctl:ThreadpoolController")().select(internal_api="openblas").limit(limits=1)


def _configure_logging(*, debug: bool) -> None:
    handler = _Lines()
    # A library may set the level of its own log, as bm25s does.
    handler.setLevel(logging.DEBUG if debug else logging.INFO)
    handler.setFormatter(logging.Formatter(f"%(levelname)-8s {'%(name)s:%(lineno)d ' if debug else ''}%(message)s"))
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, handlers=[handler])
    # A log of a library that cannot be written, as W&B's on a full disk, is no traceback in the terminal; it would show
    # what was to be logged as it is.
    logging.raiseExceptions = False
    logging.captureWarnings(capture=True)
    for package in ("corag", "experiments", "agent"):
        logging.getLogger(package).setLevel(logging.DEBUG if debug else logging.INFO)


class _Lines(logging.Handler):
    """Prints each message without wrapping, so that a command or a path in it can be copied."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = Text(visible(self.format(record)))
            text.stylize(f"logging.level.{record.levelname.lower()}", 0, len(record.levelname))
            stderr().print(text, soft_wrap=True)
        except Exception:  # noqa: BLE001 - as in all handlers of `logging`
            self.handleError(record)


if __name__ == "__main__":
    sys.exit(main())
