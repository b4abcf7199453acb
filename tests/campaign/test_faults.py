"""Any write may fail: a command ends with one line of error, and run again it gives what an undisturbed run gives."""

import json
import os
import random
import shutil
import subprocess
import sys

import pytest

from tests.campaign.test_kills import TASKS, inputs, names_in  # noqa: F401
from tests.effort import CAMPAIGN
from tests.paths import ROOT
from tests.processes import Command, environment, run_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SHORT = ("index", "label", "train agent", "tune", "evaluate", "sweep")
POINTS = 2
"""Calls that fail, one after the other, outside of the campaign."""


@pytest.fixture(scope="module")
def broken_disk(tmp_path_factory):
    """Return a function that runs a command below a folder, on which the call of a number fails, or all from it on."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    source = ROOT / "tests" / "campaign" / "faults.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    count = library.with_name("count")
    command = [sys.executable, "-m", "tests.campaign.fault_server"]
    variables = environment(LD_PRELOAD=str(library), FAULT_COUNT=str(count))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, cwd=ROOT, env=variables) as server:

        def run(arguments, folder, at=None, *, full=False):
            count.write_bytes(b"")
            variables = {"FAULT_FOLDER": str(folder)} | ({"FAULT_AT": str(at)} if at else {})
            variables |= {"FAULT_STICKY": "1"} if full else {}
            server.stdin.write(json.dumps([[str(argument) for argument in arguments], variables]) + "\n")
            server.stdin.flush()
            status, said = json.loads(server.stdout.readline())
            return status, said, len(count.read_bytes())

        yield run
        server.stdin.close()


@pytest.mark.parametrize("full", [False, True], ids=["one call", "full disk"])
@pytest.mark.parametrize("name", SHORT)
def test_a_write_that_fails_loses_nothing(inputs, broken_disk, tmp_path, figure, name, full):  # noqa: F811
    task, whole = TASKS[name], tmp_path / "whole"
    whole.mkdir()
    status, said, calls = broken_disk(task.arguments(inputs, whole), whole)
    assert status == 0 and calls > 5, said
    numbers = range(1, calls + 1) if CAMPAIGN else random.Random(f"{name} {full}").sample(range(1, calls + 1), POINTS)
    failures = []
    for number in numbers:
        folder = tmp_path / str(number)
        folder.mkdir()
        status, said, _ = broken_disk(task.arguments(inputs, folder), folder, number, full=full)
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        if (status, len(errors)) not in ((0, 0), (2, 1)) or "Traceback" in said:
            failures.append((number, status, said[-1500:]))
        status, said, _ = broken_disk(task.arguments(inputs, folder), folder)
        if status or names_in(folder) != names_in(whole):
            failures.append((number, "again", status, said[-1500:], names_in(folder)))
        elif not task.equal(task.content(folder), task.content(whole)):
            failures.append((number, "differs"))
        shutil.rmtree(folder)
        figure("faults: a full disk" if full else "faults: one call", 1)
    assert not failures, "\n".join(map(str, failures))


@pytest.mark.parametrize("name", SHORT)
def test_two_writers_at_once_give_what_one_gives(inputs, tmp_path, figure, name):  # noqa: F811
    task, whole, shared = TASKS[name], tmp_path / "whole", tmp_path / "shared"
    whole.mkdir()
    shared.mkdir()
    assert run_command(*task.arguments(inputs, whole)).returncode == 0
    both = [Command(*task.arguments(inputs, shared)) for _ in range(2)]
    ends = [command.end(timeout_s=600) for command in both]
    codes = sorted(end.returncode for end in ends)
    assert codes in ([0, 0], [0, 2]) and "Traceback" not in ends[0].stderr + ends[1].stderr, ends
    assert codes == [0, 0] or name not in ("index", "train agent")  # one waits for the other
    again = run_command(*task.arguments(inputs, shared))
    assert again.returncode == 0, again.stderr
    assert names_in(shared) == names_in(whole)
    assert task.equal(task.content(shared), task.content(whole))
    figure("faults: two writers", 1)


def test_a_fault_is_noticed(broken_disk, tmp_path):
    """The library that makes calls fail is at work."""
    assert "LD_PRELOAD" not in os.environ
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.md").write_text("# A\n\nBerlin is in Germany.\n")
    status, said, _ = broken_disk(["index", "--data", data, "--out", tmp_path / "i", "--quiet"], tmp_path / "i", 1)
    assert status == 2 and "No space left" in said
