"""CPU time of `corag ask` in processes of their own, stage by stage."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from corag.errors import CoragError
from corag.models.runtime import current
from corag.progress import counted

STAGES = ("imports", "settings", "parts", "index", "embed", "retrieve", "select", "read", "rest")
"""The interpreter and what the command imports; its arguments; selector, reader and embedder with their models; opening
the index; the steps of the answer; the rest, most of which is what is imported late, and printing."""

_PROCESS = """
import time
now = time.process_time
stages = {}

def timed(stage, run):
    def timed(*given, **settings):
        begun = now()
        found = run(*given, **settings)
        stages[stage] = now() - begun
        return found
    return timed

import contextlib, io, json, sys
from corag.cli import ask, main
from corag import reply
stages["imports"] = now()
main.make_parser = timed("settings", main.make_parser)
ask.settings_of = timed("parts", ask.settings_of)
reply.ChunkIndex.open = staticmethod(timed("index", reply.ChunkIndex.open))
answer, replies = reply.ask, []
reply.ask = lambda *given, **settings: replies.append(answer(*given, **settings)) or replies[-1]
time.perf_counter = now  # a reply tells the seconds of its steps by this clock
with contextlib.redirect_stdout(io.StringIO()):
    status = main.main(sys.argv[1:])
if status == 0:
    stages |= replies[0].seconds
    stages["rest"] = now() - sum(stages.values())
    print(json.dumps(stages))
sys.exit(status)
"""


def seconds_of_ask(index: Path, questions: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each of `STAGES` in as many processes as rounds, each with the next of the questions.

    Raises:
        CoragError: A process failed.
    """
    where = current()
    flags = ["--index", str(index), "--device", where.device, "--precision", where.precision]
    found: list[dict[str, float]] = []
    # The first process converts and compiles models, and does not count.
    for number in counted("corag ask", range(rounds + 1)):
        command = [sys.executable, "-c", _PROCESS, "ask", questions[number % len(questions)], *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CoragError(f"corag ask failed: {done.stderr.strip().splitlines()[-1]}")
        found += [json.loads(done.stdout)] if number else []
    return {stage: [one[stage] for one in found] for stage in STAGES}
