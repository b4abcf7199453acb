"""Commands outside of `corag`: flags from a dataclass, `--config FILE`, and one line for a mistake."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from corag.cli.console import say, stderr
from corag.errors import CoragError

Config = TypeVar("Config")
MISTAKE, INTERRUPTED = 2, 130


def run_alone(settings: type[Config], work: Callable[[Config], object], arguments: Sequence[str] | None = None) -> int:
    """Run a command with the settings that a command line gives; return the exit status."""
    from jsonargparse import ArgumentError, ArgumentParser

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    summary = (settings.__doc__ or "").split("\n", 1)[0]
    parser = ArgumentParser(description=summary, exit_on_error=False)
    parser.add_argument("--config", action="config", help="YAML file with settings.")
    parser.add_class_arguments(settings)
    try:
        values = vars(parser.instantiate(parser.parse_args(list(sys.argv[1:] if arguments is None else arguments))))
        work(settings(**{name: value for name, value in values.items() if name != "config"}))
    except KeyboardInterrupt:
        say("stopped; run the same command again to resume", stderr())
        return INTERRUPTED
    except (CoragError, ArgumentError, argparse.ArgumentError) as error:
        say(f"error: {' '.join(str(error).split())}", stderr())
        return MISTAKE
    return 0
