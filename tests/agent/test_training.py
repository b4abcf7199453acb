import csv
import logging
import random

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

import agent
from agent import AgentError, fit
from tests.agent.worlds import toy_config, toy_table, toy_train_config

pytestmark = pytest.mark.slow


def toy_fit(out_dir, *, train=None, val=None, config=None, device="cpu", precision="32-true", **changes):
    placement = {"device": device, "precision": precision}
    return fit(train or toy_table(), val, config or toy_config(), toy_train_config(**changes), out_dir, **placement)


def same_weights(first, second):
    return all(np.array_equal(first.agent.weights[name], second.agent.weights[name]) for name in first.agent.weights)


FAST = {"lr": 0.05, "epochs": 10}


@pytest.mark.parametrize(
    ("changes", "without"),
    [({}, {}), ({"temperature": 0.2}, {"settings": None}), ({"regret_weight": 1.0, "choice_weight": 0.0}, {})],
)
def test_a_separable_world_is_learnt(tmp_path, changes, without):
    train, val = toy_table(**without), toy_table(20, seed=1, prefix="val", **without)
    config = toy_config(ranges=None) if without else toy_config()
    report = toy_fit(tmp_path, train=train, val=val, config=config, **FAST, **changes)
    assert (report.monitor, report.history[report.best_epoch]["val_regret"]) == ("val_regret", 0.0)
    assert report.history[-1]["train_loss"] < report.history[0]["train_loss"] / 2
    names = agent.load(report.checkpoint).config.configurations
    assert [names.index(one.configuration) for one in report.agent.predict(val.features)] == val.label.tolist()


def test_the_seed_decides_the_weights(tmp_path):
    first, same, other = (
        toy_fit(tmp_path / name, epochs=3, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert same_weights(first, same)
    assert not same_weights(first, other)


def test_training_is_quiet_and_leaves_random_state_and_threads_alone(tmp_path, capfd, caplog):
    def state():
        legacy = np.random.get_state()  # noqa: NPY002 - a caller may still use it
        return random.getstate(), legacy[1].tolist(), torch.get_rng_state().tolist(), torch.get_num_threads()

    caplog.set_level(logging.INFO)
    before = state()
    toy_fit(tmp_path, epochs=2)
    assert state() == before
    assert (*capfd.readouterr(), caplog.text) == ("", "", "")


def test_any_setting_and_callback_of_lightning(tmp_path):
    averaging = {"class_path": "StochasticWeightAveraging", "init_args": {"swa_lrs": 0.01, "swa_epoch_start": 2}}
    rate = {"class_path": "lightning.pytorch.callbacks.lr_monitor.LearningRateMonitor"}  # insists on a logger
    given = {"gradient_clip_val": 0.001, "callbacks": [averaging, rate]}
    plain, other = (
        fit(toy_table(), None, toy_config(), toy_train_config(epochs=4), tmp_path / name, trainer=trainer)
        for name, trainer in (("plain", {}), ("other", given))
    )
    assert not same_weights(plain, other)
    named = ("x", "x.Y", "subprocess.Popen", "EarlyStopping")  # the last needs the name of a figure
    callbacks = [{"callbacks": [{"class_path": name}]} for name in named]
    unknown = {"callbacks": [{"class_path": "EarlyStopping", "init_args": {"monitor": "beauty"}}]}
    for wrong in ({"max_epochs": 3}, {"beauty": 1}, {"callbacks": ["os.system"]}, unknown, *callbacks):
        with pytest.raises(AgentError, match="trainer"):
            fit(toy_table(), None, toy_config(), toy_train_config(), tmp_path / "wrong", trainer=wrong)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"val": toy_table(5)}, "both training and validation"),
        ({"val": toy_table(0, prefix="val")}, "validation table"),
        ({"config": toy_config(feature_dim=7)}, "features"),
        ({"train": toy_table(quality=None), "regret_weight": 1.0}, "quality"),
        ({"train": toy_table(quality=None), "temperature": 0.1}, "quality"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(tmp_path, arguments, named):
    with pytest.raises(AgentError, match=named):
        toy_fit(tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_progress_and_a_logger_get_the_figures_of_each_epoch(tmp_path):
    reports, config = [], toy_train_config(epochs=2)
    given = {"progress": lambda *done: reports.append(done), "logger": lambda _: CSVLogger(tmp_path, name="csv")}
    history = fit(toy_table(), None, toy_config(), config, tmp_path, **given).history
    assert reports == [(1, 2), (2, 2)]
    with (tmp_path / "csv" / "version_0" / "metrics.csv").open() as lines:
        logged = list(csv.DictReader(lines))
    assert [float(row["train_contrastive"]) for row in logged] == [row["train_contrastive"] for row in history]
    for row in history:
        assert row["train_top2_accuracy"] == 1.0 and row["train_iterations_error"] >= 0
        # Eq. 11, with the weights of the paper.
        total = sum(row[f"train_{part}"] for part in ("contrastive", "choice", "settings"))
        assert row["train_loss"] == pytest.approx(total, rel=1e-5)


def test_a_finished_training_with_other_settings_or_a_damaged_checkpoint_is_done_again(tmp_path):
    first = toy_fit(tmp_path, epochs=2)
    assert len(toy_fit(tmp_path, epochs=3).history) == 3
    (first.checkpoint / "model.safetensors").write_bytes(b"damaged")
    assert toy_fit(tmp_path, epochs=3).epochs_resumed == 0
    agent.load(first.checkpoint)


def test_a_device_that_is_not_there_and_a_loss_that_diverges(tmp_path):
    for changes, named in (({"device": "abacus"}, "abacus"), ({"lr": 1e30}, "lr")):
        with pytest.raises(AgentError, match=named):
            toy_fit(tmp_path, **changes)
