"""A fork while threads select: the child selects, too, by models, words and what is kept in memory."""

import subprocess
import sys

import pytest

from tests.paths import ROOT
from tests.processes import environment

CODE = """
import faulthandler, multiprocessing, os, sys, threading
import corag

texts = [f"Valve {n} opens tank {3 * n} when the lever is down. It is red." for n in range(12)]


def select(tag):
    return corag.select("When does valve 7 open?", [f"{text} {tag}" for text in texts], 64).text


def child(tag):
    faulthandler.dump_traceback_later(60, exit=True)
    os._exit(0 if select(tag) else 1)


select("first")
stop, tags = threading.Event(), iter(range(10**9))
threads = [threading.Thread(target=lambda: [select(next(tags)) for _ in iter(stop.is_set, True)]) for _ in range(2)]
for thread in threads:
    thread.start()
codes = []
for number in range(2):
    if (pid := os.fork()) == 0:
        child(f"child {number}")
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
process = multiprocessing.get_context("fork").Process(target=child, args=("process",))
process.start()
process.join()
stop.set()
for thread in threads:
    thread.join()
select("afterwards")
print([*codes, process.exitcode])
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_children_of_a_process_whose_threads_select():
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=250)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "[0, 0, 0]"
