"""Long commands, killed again and again, end with what an unbroken run gives."""

import json
import random
import signal
import time

import numpy as np
import pytest
from safetensors import SafetensorError, safe_open

from agent.training.fit import RESUME_FILE
from corag.index import ChunkIndex
from tests.experiments.labels.label_tables import tables
from tests.experiments.worlds import write_labels
from tests.processes import Command, run_command

pytestmark = pytest.mark.slow

NUM_KILLS = 3


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


def killed_again_and_again(arguments, progress, num_units, seed):
    """Kill a command at random points of its work, the later ones later, and then let it end."""
    moments = random.Random(seed)
    points = sorted(moments.sample(range(num_units), NUM_KILLS))
    # With nothing done yet, the kill comes while data and models are loaded.
    delays = [moments.uniform(0.1, 1.0) if point == 0 else moments.uniform(0, 0.03) for point in points]
    num_killed = sum(kill_when(arguments, progress, *moment) for moment in zip(points, delays, strict=True))
    # One that ended before its signal came was not killed; most are.
    assert num_killed >= NUM_KILLS - 1
    done = run_command(*arguments)
    assert done.returncode == 0, done.stderr


def names_in(folder):
    return sorted(path.name for path in folder.rglob("*"))


def test_index(tmp_path, small_data):
    def arguments(out):
        return ["index", "--data", small_data, "--out", out, "--max_tokens", 16, "--batch_size", 1, "--quiet"]

    def rows_of(out):
        return ChunkIndex.open(out)._table.search().to_arrow()

    assert run_command(*arguments(tmp_path / "whole")).returncode == 0
    whole = rows_of(tmp_path / "whole")
    assert whole.num_rows > 30
    broken = tmp_path / "broken"
    killed_again_and_again(
        arguments(broken), lambda: len(list(broken.glob("corag_chunks_*.lance/data/*"))), whole.num_rows, seed=0
    )
    found = rows_of(broken)
    for column in ("position", "id", "text", "metadata"):
        assert found[column].to_pylist() == whole[column].to_pylist()
    np.testing.assert_allclose(found["vector"].to_pylist(), whole["vector"].to_pylist(), atol=1e-6)
    assert ChunkIndex.open(broken).search_text("lighthouse", 9) == ChunkIndex.open(tmp_path / "whole").search_text(
        "lighthouse", 9
    )


def test_label(tmp_path, small_data):
    def arguments(out):
        grid = ["--rerankers", "bm25,minilm-maxsim", "--iterations", "2,4", "--budget", 48]
        return ["label", "--data", small_data, "--out", out, *grid, "--quiet"]

    def units_done():
        journal = tmp_path / "broken" / "labels.journal.jsonl"
        return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0

    assert run_command(*arguments(tmp_path / "whole" / "labels.parquet")).returncode == 0
    killed_again_and_again(arguments(tmp_path / "broken" / "labels.parquet"), units_done, 9, seed=1)
    found = tables(tmp_path / "broken" / "labels.parquet")
    assert found == tables(tmp_path / "whole" / "labels.parquet")
    assert len(found[0]) == 9 * 16
    names = ["labels.parquet", "labels.questions.parquet"]
    assert names_in(tmp_path / "broken") == names_in(tmp_path / "whole") == names


def test_train(tmp_path):
    labels, num_epochs = write_labels(tmp_path / "labels.parquet"), 40

    def arguments(out):
        training = ["--training.logger", "none", "--training.epochs", num_epochs]
        return ["train", "--labels", labels, "--out", out, *training, "--quiet"]

    def epochs_done():
        try:
            with safe_open(tmp_path / "broken" / RESUME_FILE, framework="numpy") as file:
                return len(json.loads(file.metadata()["training"])["history"])
        except (OSError, SafetensorError):
            return 0

    assert run_command(*arguments(tmp_path / "whole")).returncode == 0
    killed_again_and_again(arguments(tmp_path / "broken"), epochs_done, num_epochs - 5, seed=2)
    weights = "checkpoint/model.safetensors"
    assert (tmp_path / "broken" / weights).read_bytes() == (tmp_path / "whole" / weights).read_bytes()
    assert names_in(tmp_path / "broken") == names_in(tmp_path / "whole")
