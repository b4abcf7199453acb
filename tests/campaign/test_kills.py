"""Long commands, killed again and again, end with what an unbroken run gives: no row is lost or doubled."""

import json
import operator
import random
import signal
import time
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from corag.index import ChunkIndex
from corag.text.data import DataFolder
from experiments.agents.sweep import SUMMARY_FILE
from tests.effort import CAMPAIGN
from tests.experiments.worlds import DOCUMENTS, MANY_QUERIES, QUERIES, same, untimed, write_folder, write_labels
from tests.processes import Command, run_command

pytestmark = pytest.mark.slow

TIMES, KILLS = 4, 5
"""In the campaign: how often each command is begun anew, and killed each time."""


def kill_when(arguments, progress, units_done, delay_s):
    """Run a command until it has done so many units, and a moment longer; return whether it was killed in time."""
    process = Command(*arguments)
    while progress() < units_done and process.alive():
        time.sleep(0.002)
    time.sleep(delay_s)
    process.send(signal.SIGKILL)
    done = process.end()
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode == -signal.SIGKILL


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


def rows_of(labels):
    """Return the rows of a label table."""
    return pq.read_table(labels).to_pylist()


def lines_in(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def index_rows(folder):
    index = ChunkIndex.open(folder / "i")
    names = ["position", "id", "text", "metadata", "vector"]
    rows = index._table.rows(names)
    assert rows.num_rows > 10
    columns = [rows[name].to_pylist() for name in names]
    return [*columns, index.retrieve("lighthouse", np.ones(384), 9, "text")]


def label_rows(folder):
    assert names_in(folder) == ["labels.parquet"]
    return rows_of(folder / "labels.parquet")


def epochs_done(folder):
    """The epochs that a training by Lightning has kept."""
    for path in folder.rglob("last.ckpt"):
        try:
            return int(torch.load(path, weights_only=True)["epoch"])
        except OSError:  # it is finished meanwhile
            return 0
    return 0


def sweep_weights(folder):
    weights = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("model.safetensors")}
    assert len(weights) == 6
    return [weights, untimed(json.loads((folder / "s" / SUMMARY_FILE).read_text()))]


def results(folder):
    rows = [untimed(json.loads(row)) for row in (folder / "r.rows.jsonl").read_text().splitlines()]
    assert len(rows) == 3 * 5
    return [rows, untimed(json.loads((folder / "r.json").read_text()))]


def tuned(folder):
    rows = rows_of(folder / "t" / "labels.parquet")
    assert len({row["query"] for row in rows}) == 24 and len(rows) % 24 == 0
    return rows, json.loads((folder / "t" / "config.json").read_text())["fallback"]


def references(folder):
    queries = DataFolder.open(folder / "out").queries
    assert sum(bool(query.answers) for query in queries) == 66
    return queries


TASKS = {
    "index": Task(
        lambda inputs, folder: ["index", "--data", inputs / "data", "--out", folder / "i", "--max_tokens", 32,
                                "--batch_size", 1, "--quiet"],
        lambda folder: len(list(folder.glob("i/corag_chunks.lance/data/*"))),
        10, index_rows, same,
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
                                "--logger", "none", "--training.epochs", 20, "--target.metric", "quality", "--quiet"],
        epochs_done,
        15, lambda folder: (folder / "checkpoint" / "model.safetensors").read_bytes(),
    ),
    "train value": Task(
        lambda inputs, folder: ["train", "value", "--config", inputs / "adapter.yaml", "--out", folder / "a"],
        epochs_done,
        15,
        lambda folder: [(folder / "a/adapter" / one).read_bytes() for one in ("model.safetensors", "config.json")],
    ),
    "sweep": Task(
        lambda inputs, folder: [
            "sweep", "--base.labels", inputs / "labels.parquet", "--base.out", folder / "s", "--base.logger", "none",
            "--vary", '{"training.margin": [0.5, 1.0]}', "--base.training.epochs", 4,
            "--base.target.metric", "quality", "--quiet", "true"],
        lambda folder: len(list(folder.glob("s/*/training.json"))),
        6, sweep_weights, same,
    ),
    "evaluate": Task(
        lambda inputs, folder: ["evaluate", "--data", inputs / "data", "--out", folder / "r.json", "--split", "train",
                                "--methods", "top-k,naive(reranker=bm25),mmr", "--budget", 64, "--quiet"],
        lambda folder: lines_in(folder / "r.journal.jsonl") - 1,
        5, results, same,
    ),
    "tune": Task(
        lambda inputs, folder: [
            "tune", "--data", inputs / "many", "--out", folder / "t", "--reader", "extractive", "--quiet",
            "--configurations", "naive(reranker=bm25), top-k(k=1)"],
        lambda folder: lines_in(folder / "t" / "labels.journal.jsonl") - 1,
        24, tuned,
    ),
    "references": Task(
        lambda inputs, folder: ["data", "references", "--data", inputs / "unanswered", "--out", folder / "out",
                                "--reader", "extractive", "--quiet"],
        lambda folder: lines_in(folder / ".out.references.jsonl") - 1,
        66, references,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder of what the commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    write_folder(folder / "data")
    write_folder(folder / "many", DOCUMENTS, MANY_QUERIES)
    # Several batches, so that a kill finds some done.
    unanswered = [{**query, "id": f"{query['id']}-{copy}", "answers": []} for copy in range(6) for query in QUERIES]
    write_folder(folder / "unanswered", DOCUMENTS, unanswered)
    write_labels(folder / "labels.parquet")
    training = {
        "name": "toy", "data": str(folder), "logger": "none", "quiet": True, "max_size": 2,
        "sources": [{"data": "data", "within": "corpus", "num_candidates": 4}],
        "hidden": 4, "epochs": 20,
    }  # fmt: skip
    (folder / "adapter.yaml").write_text(yaml.safe_dump(training))
    return folder


@pytest.mark.parametrize("name", TASKS)
def test_killed_at_random_points_a_command_ends_as_undisturbed(inputs, tmp_path, figure, name):
    task, whole = TASKS[name], tmp_path / "whole"
    whole.mkdir()
    done = run_command(*task.arguments(inputs, whole))
    assert done.returncode == 0, done.stderr
    kills = KILLS if CAMPAIGN else 1
    for number in range(TIMES if CAMPAIGN else 1):
        moments = random.Random(f"{name} {number}")
        points = sorted(moments.sample(range(task.num_units), kills))
        # With nothing done yet, the kill comes while data and models are loaded.
        delays = [moments.uniform(0.1, 1.0) if point == 0 else moments.uniform(0, 0.03) for point in points]
        broken = tmp_path / str(number)
        broken.mkdir()
        for moment in zip(points, delays, strict=True):
            if kill_when(task.arguments(inputs, broken), lambda: task.progress(broken), *moment):  # noqa: B023
                figure("kills", 1)
        done = run_command(*task.arguments(inputs, broken))
        assert done.returncode == 0, done.stderr
        assert names_in(broken) == names_in(whole)
        assert task.equal(task.content(broken), task.content(whole))
