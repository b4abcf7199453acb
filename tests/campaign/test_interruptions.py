"""Long commands that are killed, that fail at any write, or that write at once end with what an unbroken run gives.

No row is lost or doubled, and a write that fails is one line of error.
"""

import json
import operator
import random
import shutil
import signal
import time
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from corag.index import ChunkIndex
from corag.index.store import all_rows
from tests.effort import CAMPAIGN
from tests.experiments.worlds import DOCUMENTS, same, untimed, write_folder, write_labels
from tests.processes import FAULTS, Command, run_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

TIMES, KILLS = (4, 5) if CAMPAIGN else (1, 1)
"""How often each command is begun anew, and killed each time."""


def kill_when(arguments, progress, units_done, delay_s):
    """Run a command until it has done so many units, and a moment longer."""
    process = Command(*arguments)
    while progress() < units_done and process.alive():
        time.sleep(0.002)
    time.sleep(delay_s)
    process.send(signal.SIGKILL)
    done = process.end()
    assert done.returncode in (0, -signal.SIGKILL), done.stderr


@dataclass
class Task:
    """A command that can be stopped and run again.

    Attributes:
        arguments: Its words, of the folder of all inputs and the folder that it writes below.
        progress: Returns the units of work that are done below that folder.
        num_units: How many there are.
        content: What is compared of a folder.
        equal: Whether two contents agree.
    """

    arguments: object
    progress: object
    num_units: int
    content: object
    equal: object = operator.eq


def names_in(folder):
    """Return the files of a folder but Lance's, whose names are random, and drafts, which a kill may leave behind."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return sorted(name for name in names if ".lance" not in name and not name.endswith(".part"))


def lines_in(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def index_rows(folder):
    index = ChunkIndex.open(folder / "i")
    names = ["position", "id", "text", "metadata", "vector"]
    rows = all_rows(index._table, names)
    assert rows.num_rows > 10
    columns = [rows[name].to_pylist() for name in names]
    return [*columns, index.retrieve("lighthouse", np.ones(384), 9, "text")]


def label_rows(folder):
    assert names_in(folder) == ["labels.parquet"]
    return pq.read_table(folder / "labels.parquet").to_pylist()


def epochs_done(folder):
    """The epochs that a training by Lightning has kept."""
    for path in folder.rglob("last.ckpt"):
        try:
            return int(torch.load(path, weights_only=True)["epoch"])
        except OSError:  # it is finished meanwhile
            return 0
    return 0


def results(folder):
    rows = [untimed(json.loads(row)) for row in (folder / "r.rows.jsonl").read_text().splitlines()]
    assert len(rows) == 3 * 5
    return [rows, untimed(json.loads((folder / "r.json").read_text()))]


TASKS = {
    "index": Task(
        lambda inputs, folder: ["index", "--data", inputs / "long", "--out", folder / "i", "--quiet"],
        lambda folder: len(list(folder.glob("i/corag_chunks.lance/data/*"))),
        4, index_rows, same,
    ),
    "label": Task(
        lambda inputs, folder: [
            "label", "--data", inputs / "data", "--out", folder / "labels.parquet", "--iterations", "2,4",
            "--configurations", "corag(unit=passage, reranker=bm25), corag(unit=sentence, reranker=minilm-softsim)",
            "--cost_weights", "0,0.4", "--budget", 48, "--quiet"],
        lambda folder: lines_in(folder / "labels.journal.jsonl") - 1,
        8, label_rows,
    ),
    "train agent": Task(
        lambda inputs, folder: ["train", "agent", "--labels", inputs / "labels.parquet", "--out", folder,
                                "--logger", "none", "--training.epochs", 20, "--target.metric", "f1", "--quiet"],
        epochs_done,
        15, lambda folder: (folder / "checkpoint" / "model.safetensors").read_bytes(),
    ),
    "evaluate": Task(
        lambda inputs, folder: [
            "evaluate", "--data", inputs / "data", "--out", folder / "r.json", "--split", "train", "--budget", 64,
            "--methods", "top-k,naive(reranker=bm25),mmr", "--curves", CAMPAIGN, "--quiet"],
        lambda folder: lines_in(folder / "r.journal.jsonl") - 1,
        5, results, same,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder of what the commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    write_folder(folder / "data")
    # Chunks are committed by 256.
    numbers = [{"id": f"n{number}", "title": "", "text": f"Number {number}."} for number in range(1000)]
    write_folder(folder / "long", [*DOCUMENTS, *numbers])
    write_labels(folder / "labels.parquet")
    return folder


@pytest.fixture(scope="module")
def broken_disk(tmp_path_factory):
    """Return a function that runs a command below a folder, on which calls fail as the environment says."""
    count = tmp_path_factory.mktemp("faults") / "count"

    def run(arguments, folder, **faults):
        count.write_bytes(b"")
        done = run_command(*arguments, FAULT_FOLDER=folder, FAULT_COUNT=count, **faults)
        return done.returncode, done.stdout + done.stderr, len(count.read_bytes())

    return run


@pytest.fixture(scope="module")
def undisturbed(inputs, broken_disk, tmp_path_factory):
    """Return a function that runs a task once and returns the folder below which it wrote, and the calls it made."""

    @cache
    def run(name):
        folder = tmp_path_factory.mktemp(name)
        status, said, calls = broken_disk(TASKS[name].arguments(inputs, folder), folder)
        assert status == 0, said
        return folder, calls

    return run


def assert_equal(task, folder, whole):
    """Raise `AssertionError` unless a task wrote the same below both folders."""
    assert names_in(folder) == names_in(whole)
    assert task.equal(task.content(folder), task.content(whole))


@pytest.mark.parametrize("name", TASKS)
def test_killed_at_random_points_a_command_ends_as_undisturbed(inputs, undisturbed, tmp_path, name):
    task, (whole, _) = TASKS[name], undisturbed(name)
    for number in range(TIMES):
        moments = random.Random(f"{name} {number}")
        points = sorted(moments.sample(range(task.num_units), KILLS))
        # With nothing done yet, the kill comes while data and models are loaded.
        delays = [moments.uniform(0.1, 1.0) if point == 0 else moments.uniform(0, 0.03) for point in points]
        broken = tmp_path / str(number)
        broken.mkdir()
        for moment in zip(points, delays, strict=True):
            kill_when(task.arguments(inputs, broken), lambda: task.progress(broken), *moment)  # noqa: B023
        done = run_command(*task.arguments(inputs, broken))
        assert done.returncode == 0, done.stderr
        assert_equal(task, broken, whole)


FAULTY = [*product(TASKS, (False, True))] if CAMPAIGN else [*zip(TASKS, 2 * (False, True), strict=True)]
"""Commands, and whether the disk stays full."""


@pytest.mark.skipif(FAULTS is None, reason="needs Linux and a C compiler")
@pytest.mark.parametrize(("name", "full"), FAULTY)
def test_a_write_that_fails_loses_nothing(inputs, undisturbed, broken_disk, tmp_path, name, full):
    task, (whole, calls) = TASKS[name], undisturbed(name)
    assert calls > 5
    numbers = range(1, calls + 1) if CAMPAIGN else [random.Random(f"{name} {full}").randint(1, calls)]
    failures = []
    for number in numbers:
        folder = tmp_path / str(number)
        folder.mkdir()
        sticky = {"FAULT_STICKY": 1} if full else {}
        status, said, _ = broken_disk(task.arguments(inputs, folder), folder, FAULT_AT=number, **sticky)
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        if (status, len(errors)) not in ((0, 0), (2, 1)) or "Traceback" in said:
            failures.append((number, status, said[-1500:]))
        status, said, _ = broken_disk(task.arguments(inputs, folder), folder)
        if status or names_in(folder) != names_in(whole):
            failures.append((number, "again", status, said[-1500:], names_in(folder)))
        elif not task.equal(task.content(folder), task.content(whole)):
            failures.append((number, "differs"))
        shutil.rmtree(folder)
    assert not failures, "\n".join(map(str, failures))


@pytest.mark.parametrize("name", TASKS if CAMPAIGN else list(TASKS)[:3])
def test_two_writers_at_once_give_what_one_gives(inputs, undisturbed, tmp_path, name):
    task, (whole, _) = TASKS[name], undisturbed(name)
    both = [Command(*task.arguments(inputs, tmp_path)) for _ in range(2)]
    ends = [command.end(timeout_s=600) for command in both]
    codes = sorted(end.returncode for end in ends)
    assert codes in ([0, 0], [0, 2]) and "Traceback" not in ends[0].stderr + ends[1].stderr, ends
    assert codes == [0, 0] or name not in ("index", "train agent")  # one waits for the other
    if codes == [0, 2]:
        again = run_command(*task.arguments(inputs, tmp_path))
        assert again.returncode == 0, again.stderr
    assert_equal(task, tmp_path, whole)
