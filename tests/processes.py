"""The command line in processes that can be killed and interrupted, and that import no library again.

A process of its own is forked from a server that has imported torch and its like; only those who test how Python starts
or ends need `subprocess`. In it calls of the operating system can fail; see `campaign/faults.c`.
"""

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from multiprocessing import forkserver
from pathlib import Path

import pytest

from tests.paths import ROOT

FAULTS = shutil.which("cc") if sys.platform == "linux" else None
"""What compiles the library that makes calls fail."""


@cache
def fork_server():
    """The context whose processes are forks of a server with the modules of `tests.preloaded`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    if FAULTS:
        context.folder = tempfile.TemporaryDirectory()  # is there until this process ends
        library, source = f"{context.folder.name}/faults.so", ROOT / "tests" / "campaign" / "faults.c"
        subprocess.run([FAULTS, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LD_PRELOAD", library)
            forkserver.ensure_running()
    return context


def environment(**changes):
    """The environment of such a process: no network, wide lines."""
    changes = {"HF_HUB_OFFLINE": 1, "WANDB_MODE": "offline", "COLUMNS": 200} | changes
    return os.environ | {name: str(value) for name, value in changes.items()}


def _run(arguments, variables, said):
    for number, path in enumerate(said, start=1):
        with path.open("wb") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(ROOT)
    from corag.cli.main import main

    sys.exit(main(arguments))


class Command:
    """A running `corag`."""

    def __init__(self, *arguments, **changes):
        self._folder = tempfile.TemporaryDirectory()
        self._said = [Path(self._folder.name) / name for name in ("out", "err")]
        for path in self._said:
            path.touch()  # a kill may come before the process opens it
        given = ([str(argument) for argument in arguments], environment(**changes), self._said)
        self._process = fork_server().Process(target=_run, args=given)
        self._process.start()

    def alive(self):
        return self._process.is_alive()

    def send(self, number):
        """Send a signal, unless the process has ended."""
        if self.alive():
            os.kill(self._process.pid, number)

    def end(self, timeout_s=120):
        """Wait for the end; return the status and what was said."""
        self._process.join(timeout_s)
        if self.alive():
            self._process.kill()
            raise TimeoutError(f"still running after {timeout_s} seconds")
        out, err = (path.read_text("utf-8") for path in self._said)
        self._folder.cleanup()
        return subprocess.CompletedProcess([], self._process.exitcode, out, err)


def run_command(*arguments, **changes):
    """Run `corag` to its end."""
    return Command(*arguments, **changes).end()
