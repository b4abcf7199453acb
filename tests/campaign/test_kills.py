"""Long commands, killed again and again, end with what an unbroken run gives: no row is lost or doubled."""

import json
import random
import re
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
from tests.experiments.worlds import DOCUMENTS, MANY_QUERIES, QUERIES, same, write_folder, write_labels
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
        arguments: Its words, which write below a folder.
        progress: Returns the units of work that are done below that folder.
        num_units: How many there are.
    """

    arguments: object
    progress: object
    num_units: int

    def broken_and_whole(self, folder, figure):
        """Run it undisturbed, and killed at random points of its work before it may end; return both folders."""
        whole, broken = folder / "whole", folder / "broken"
        for place in (whole, broken):
            place.mkdir()
        done = run_command(*self.arguments(whole))
        assert done.returncode == 0, done.stderr
        for number in range(TIMES if CAMPAIGN else 1):
            kills = KILLS if CAMPAIGN else 1
            moments = random.Random(f"{self.arguments(folder)[0]} {number}")
            points = sorted(moments.sample(range(self.num_units), kills))
            # With nothing done yet, the kill comes while data and models are loaded.
            delays = [moments.uniform(0.1, 1.0) if point == 0 else moments.uniform(0, 0.03) for point in points]
            place = broken / str(number)
            place.mkdir()
            for moment in zip(points, delays, strict=True):
                if kill_when(self.arguments(place), lambda place=place: self.progress(place), *moment):
                    figure("kills", 1)
            done = run_command(*self.arguments(place))
            assert done.returncode == 0, done.stderr
            assert names_in(place) == names_in(whole)
            yield place, whole


def names_in(folder):
    """Return the files of a folder; Lance and W&B give theirs random names."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return sorted(name for name in names if ".lance" not in name)


def rows_of(labels):
    """Return the rows of a label table without their times."""
    return pq.read_table(labels).drop_columns(["seconds"]).to_pylist()


def lines_in(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def untimed(content):
    """Return JSON without figures of time."""
    if isinstance(content, dict):
        return {
            key: untimed(one) for key, one in content.items() if not re.search(r"latency|seconds|_s$|_ms|work", key)
        }
    return [untimed(one) for one in content] if isinstance(content, list) else content


def test_index(tmp_path, small_data, figure):
    def rows_of(folder):
        return ChunkIndex.open(folder / "i")._table.search().to_arrow()

    settings = ["--max_tokens", 32, "--batch_size", 1, "--quiet"]
    task = Task(
        lambda folder: ["index", "--data", small_data, "--out", folder / "i", *settings],
        lambda folder: len(list(folder.glob("i/corag_chunks.lance/data/*"))),
        10,
    )
    for broken, whole in task.broken_and_whole(tmp_path, figure):
        found, expected = rows_of(broken), rows_of(whole)
        assert found.num_rows == expected.num_rows > 10
        for column in ("position", "id", "text", "metadata"):
            assert found[column].to_pylist() == expected[column].to_pylist()
        np.testing.assert_allclose(found["vector"].to_pylist(), expected["vector"].to_pylist(), atol=1e-6)
        hits = [
            ChunkIndex.open(folder / "i").retrieve("lighthouse", np.ones(384), 9, "text") for folder in (broken, whole)
        ]
        assert hits[0] == hits[1]


def test_label(tmp_path, small_data, figure):
    classes = "corag(unit=passage, reranker=bm25), corag(unit=sentence, reranker=minilm-softsim)"
    grid = ["--configurations", classes, "--iterations", "2,4", "--cost_weights", "0,0.4", "--budget", 48, "--quiet"]
    task = Task(
        lambda folder: ["label", "--data", small_data, "--out", folder / "labels.parquet", *grid],
        lambda folder: lines_in(folder / "labels.journal.jsonl") - 1,
        8,
    )
    for broken, whole in task.broken_and_whole(tmp_path, figure):
        found, expected = (rows_of(folder / "labels.parquet") for folder in (broken, whole))
        assert found == expected
        assert names_in(broken) == ["labels.parquet"]


def epochs_done(folder):
    """The epochs that a training by Lightning has kept."""
    for path in folder.rglob("last.ckpt"):
        try:
            return int(torch.load(path, weights_only=True)["epoch"])
        except OSError:  # it is finished meanwhile
            return 0
    return 0


def test_train_agent(tmp_path, figure):
    labels, num_epochs = write_labels(tmp_path / "labels.parquet"), 20
    settings = ["--logger", "none", "--training.epochs", num_epochs, "--quiet"]
    task = Task(
        lambda folder: ["train", "agent", "--labels", labels, "--out", folder, *settings],
        epochs_done,
        num_epochs - 5,
    )
    for broken, whole in task.broken_and_whole(tmp_path, figure):
        weights = "checkpoint/model.safetensors"
        assert (broken / weights).read_bytes() == (whole / weights).read_bytes()


def test_train_value(tmp_path, small_data, figure):
    source = {"data": small_data.name, "within": "corpus", "num_candidates": 4}
    training = {
        "name": "toy", "data": str(small_data.parent), "sources": [source], "logger": "none", "quiet": True,
        "max_size": 2,
        "fit": {"hidden": 4, "epochs": 20, "members": 2},
    }  # fmt: skip
    config = tmp_path / "adapter.yaml"
    config.write_text(yaml.safe_dump(training))
    task = Task(lambda folder: ["train", "value", "--config", config, "--out", folder / "a"], epochs_done, 15)
    for broken, whole in task.broken_and_whole(tmp_path, figure):
        for name in ("model.safetensors", "config.json"):
            found, expected = ((folder / "a" / "adapter" / name).read_bytes() for folder in (broken, whole))
            assert found == expected


def test_sweep(tmp_path, figure):
    labels = write_labels(tmp_path / "labels.parquet")
    settings = ["--base.logger", "none", "--base.training.epochs", 4, "--quiet", "true"]
    vary = '{"training.margin": [0.5, 1.0]}'
    task = Task(
        lambda folder: ["sweep", "--base.labels", labels, "--base.out", folder / "s", "--vary", vary, *settings],
        lambda folder: len(list(folder.glob("s/*/training.json"))),
        6,
    )
    for broken, whole in task.broken_and_whole(tmp_path, figure):
        found, expected = (
            {path.relative_to(folder): path.read_bytes() for path in folder.rglob("model.safetensors")}
            for folder in (broken, whole)
        )
        assert found == expected and len(found) == 6
        runs = [untimed(json.loads((folder / "s" / SUMMARY_FILE).read_text())) for folder in (broken, whole)]
        assert same(*runs)


def test_evaluate(tmp_path, small_data, figure):
    settings = ["--split", "train", "--methods", "top-k,naive(reranker=bm25),mmr", "--budget", 64, "--quiet"]
    task = Task(
        lambda folder: ["evaluate", "--data", small_data, "--out", folder / "r.json", *settings],
        lambda folder: lines_in(folder / "r.journal.jsonl") - 1,
        5,
    )
    for broken, whole in task.broken_and_whole(tmp_path, figure):
        results = [untimed(json.loads((folder / "r.json").read_text())) for folder in (broken, whole)]
        assert same(*results)
        rows = [
            [untimed(json.loads(row)) for row in (folder / "r.rows.jsonl").read_text().splitlines()]
            for folder in (broken, whole)
        ]
        assert same(*rows) and len(rows[0]) == 3 * 5


def test_tune(tmp_path, figure):
    data = write_folder(tmp_path / "data", DOCUMENTS, MANY_QUERIES)
    settings = ["--configurations", "naive(reranker=bm25), top-k(k=1)", "--reader", "extractive", "--quiet"]
    task = Task(
        lambda folder: ["tune", "--data", data, "--out", folder / "t", *settings],
        lambda folder: lines_in(folder / "t" / "labels.journal.jsonl") - 1,
        24,
    )
    for broken, whole in task.broken_and_whole(tmp_path, figure):
        found, expected = (rows_of(folder / "t" / "labels.parquet") for folder in (broken, whole))
        assert found == expected and len(found) == 24 * 26
        records = [json.loads((folder / "t" / "config.json").read_text()) for folder in (broken, whole)]
        assert records[0]["fallback"]["configuration"] == records[1]["fallback"]["configuration"]


def test_references(tmp_path, figure):
    data = write_folder(tmp_path / "data", DOCUMENTS, [{**query, "answers": []} for query in QUERIES])
    settings = ["--reader", "extractive", "--batch_size", 1, "--quiet"]
    task = Task(
        lambda folder: ["data", "references", "--data", data, "--out", folder / "out", *settings],
        lambda folder: lines_in(folder / ".out.references.jsonl") - 1,
        11,
    )
    for broken, whole in task.broken_and_whole(tmp_path, figure):
        found, expected = (DataFolder.open(folder / "out").queries for folder in (broken, whole))
        assert found == expected and sum(bool(query.answers) for query in found) == 11
