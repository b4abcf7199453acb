"""The command line in processes that can be killed and interrupted, and that import no library again.

A process of its own is forked from a server that has imported torch and its like; only those who test how Python starts
or ends need `subprocess`.
"""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import BinaryIO

from tests.paths import ROOT


@cache
def fork_server():
    """The context whose processes are forks of a server with the modules of `tests.preloaded`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    return context


def environment(**changes):
    """The environment of such a process: no network, wide lines."""
    return os.environ | {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "COLUMNS": "200"} | changes


def _run(arguments, variables, out, err):
    for number, stream in enumerate((out, err), start=1):
        os.dup2(stream.fileno(), number)
        stream.close()
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(ROOT)
    from corag.cli.main import main

    sys.exit(main(arguments))


class Command:
    """A running `corag`."""

    def __init__(self, *arguments, **changes):
        context = fork_server()
        pipes = [context.Pipe(duplex=False) for _ in range(2)]
        ends = [end for _, end in pipes]
        self._process = context.Process(
            target=_run, args=([str(argument) for argument in arguments], environment(**changes), *ends)
        )
        self._process.start()
        self._said = [b"", b""]
        for end in ends:
            end.close()
        self._readers = [threading.Thread(target=self._read, args=(n, start)) for n, (start, _) in enumerate(pipes)]
        for reader in self._readers:
            reader.start()

    def _read(self, number, connection):
        stream: BinaryIO
        with connection, open(connection.fileno(), "rb", closefd=False) as stream:
            self._said[number] = stream.read()

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
        for reader in self._readers:
            reader.join()
        out, err = (text.decode() for text in self._said)
        return subprocess.CompletedProcess([], self._process.exitcode, out, err)


def run_command(*arguments, **changes):
    """Run `corag` to its end."""
    return Command(*arguments, **changes).end()


@contextmanager
def served(*arguments, **changes):
    """Yield the process, the address and, in the end, all words of a `corag serve` or `corag app`, ended by Ctrl-C."""
    command = [sys.executable, "-m", "corag.cli.main", *map(str, arguments), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    variables = environment(PYTHONUNBUFFERED="1", **changes)
    with subprocess.Popen(command, cwd=ROOT, env=variables, **pipes) as process:
        try:
            said = process.stdout.readline()
            port = re.search(r"http://[^ ;]*:(\d+)", said)[1]
            server = SimpleNamespace(process=process, url=f"http://127.0.0.1:{port}/", said=said)
            yield server
            process.send_signal(signal.SIGINT)
            server.said += process.communicate(timeout=60)[0]
            assert process.returncode == 0, server.said
        finally:
            process.kill()
