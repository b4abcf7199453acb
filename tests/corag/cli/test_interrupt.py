"""Ctrl-C while an agent is trained: status 130, how to go on, and the last whole epoch is kept."""

import signal
import sys
import time

import pytest
from agent.training.lightning_module import AgentModule

from agent.training.fit import RESUME_FILE, fit
from tests.agent.worlds import toy_config, toy_table, toy_train_config
from tests.experiments.worlds import write_labels
from tests.processes import Command, fork_server


def test_an_interrupted_training_goes_on_after_its_last_whole_epoch(tmp_path, monkeypatch):
    whole = fit(toy_table(), None, toy_config(), toy_train_config(epochs=4), tmp_path / "whole")
    handler, step, steps = signal.getsignal(signal.SIGINT), AgentModule.training_step, []

    def interrupted(self, *arguments):
        if self.current_epoch == 2:
            raise KeyboardInterrupt
        steps.append(self.current_epoch)
        return step(self, *arguments)

    monkeypatch.setattr(AgentModule, "training_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(toy_table(), None, toy_config(), toy_train_config(epochs=4), tmp_path / "out")
    assert set(steps) == {0, 1} and (tmp_path / "out" / RESUME_FILE).exists()
    # Lightning ignores the signal from then on.
    assert signal.getsignal(signal.SIGINT) is handler
    monkeypatch.undo()
    found = fit(toy_table(), None, toy_config(), toy_train_config(epochs=4), tmp_path / "out")
    assert found.epochs_resumed == 2 and found.history == whole.history


def train_while_a_signal_is_dropped(out, found):
    """Run `fit` until the end that a signal gives it; send the epochs, the end and the handler after it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.unraisablehook = lambda _: None
    step, epochs = AgentModule.training_step, []

    class Finalised:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def signalled(self, *arguments):
        if self.current_epoch == 1 and 1 not in epochs:
            Finalised()  # KeyboardInterrupt is raised in __del__, where Python ignores it
        epochs.append(self.current_epoch)
        return step(self, *arguments)

    AgentModule.training_step = signalled
    end = "none"
    try:
        fit(toy_table(), None, toy_config(), toy_train_config(epochs=4), out)
    except KeyboardInterrupt:
        end = "interrupted"
    found.send((set(epochs), end, signal.getsignal(signal.SIGINT) is signal.default_int_handler))


@pytest.mark.slow
def test_a_signal_that_python_drops_stops_the_training_after_the_epoch(tmp_path):
    # A process of its own: a real signal is the whole process's, and the runner of the tests would not survive one.
    here, there = fork_server().Pipe(duplex=False)
    process = fork_server().Process(target=train_while_a_signal_is_dropped, args=(tmp_path / "out", there))
    process.start()
    there.close()
    process.join(120)
    assert process.exitcode == 0
    assert here.recv() == ({0, 1}, "interrupted", True)


@pytest.mark.slow
def test_ctrl_c_while_training(tmp_path):
    labels = write_labels(tmp_path / "labels.parquet")
    arguments = ["train", "--labels", labels, "--out", tmp_path / "agent", "--training.epochs", 5000, "--quiet"]
    arguments += ["--training.logger", "none", "--shares", "[0.5,0.25,0.25]"]
    process = Command(*arguments)
    while not (tmp_path / "agent" / RESUME_FILE).exists():
        assert process.alive(), process.end()
        time.sleep(0.02)
    process.send(signal.SIGINT)
    done = process.end(timeout_s=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "stopped; run the same command again to resume"
    assert (tmp_path / "agent" / RESUME_FILE).exists()
