"""Ctrl-C while an agent is trained: status 130, how to go on, and the last whole epoch is kept."""

import signal
import time

import pytest

from tests.experiments.worlds import write_labels
from tests.processes import Command


@pytest.mark.slow
def test_ctrl_c_while_training(tmp_path):
    labels = write_labels(tmp_path / "labels.parquet")
    arguments = ["train", "--labels", labels, "--out", tmp_path / "agent", "--training.epochs", 5000, "--quiet"]
    arguments += ["--logger", "none", "--shares", "[0.5,0.25,0.25]"]
    process = Command(*arguments)
    while not list((tmp_path / "agent").rglob("last.ckpt")):
        assert process.alive(), process.end()
        time.sleep(0.02)
    process.send(signal.SIGINT)
    done = process.end(timeout_s=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "stopped; run the same command again to resume"
    assert list((tmp_path / "agent").rglob("last.ckpt"))
