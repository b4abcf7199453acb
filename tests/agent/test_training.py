"""The network, its losses and its training."""

import logging
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import agent
from agent import AgentModel, ConfigurationAgent, fit
from agent.losses import choice_loss, contrastive_loss
from agent.training.data import FeatureScaling
from common.errors import InputError
from tests.agent.worlds import DIM, random_weights, toy_config, toy_table, toy_train_config

pytestmark = pytest.mark.slow


def contrastive_by_loops(maps, reranker, weight, margin):
    sums = {True: [0.0, 0.0], False: [0.0, 0.0]}
    for i in range(len(maps)):
        for j in range(i + 1, len(maps)):
            distance = np.sqrt(((maps[i] - maps[j]) ** 2).sum())
            same = bool(reranker[i] == reranker[j])
            loss = distance**2 if same else max(0.0, margin - distance) ** 2
            sums[same][0] += weight[i] * weight[j] * loss
            sums[same][1] += weight[i] * weight[j]
    return sum(loss / total if total else 0.0 for loss, total in sums.values())


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**31), st.floats(0.1, 3.0))
def test_contrastive_loss_agrees_with_loops(num_rows, seed, margin):
    rng = np.random.default_rng(seed)
    maps = rng.normal(size=(num_rows, 3))
    labels = rng.integers(0, 3, num_rows)
    weight = rng.integers(0, 3, num_rows).astype(float)
    loss = contrastive_loss(*map(torch.from_numpy, (maps, labels, weight)), margin)
    assert loss.item() == pytest.approx(contrastive_by_loops(maps, labels, weight, margin), rel=1e-4, abs=1e-5)


def test_choice_loss_worked_by_hand():
    # Softmax of (0, ln 3) is (1/4, 3/4); of (0, 0) it is (1/2, 1/2).
    logits = torch.tensor([[0.0, np.log(3.0)], [0.0, 0.0]])
    labels = torch.tensor([1, 0])
    quarter, half = np.log(4 / 3), np.log(2)
    assert choice_loss(logits, labels, torch.ones(2)).item() == pytest.approx((quarter + half) / 2)
    assert choice_loss(logits, labels, torch.tensor([0.0, 0.5])).item() == pytest.approx(half)
    assert choice_loss(logits, labels, torch.zeros(2)).item() == 0.0


def test_identical_maps_have_a_finite_gradient():
    maps = torch.zeros(4, 3, requires_grad=True)
    contrastive_loss(maps, torch.tensor([0, 0, 1, 1]), torch.ones(4), 1.0).backward()
    assert torch.isfinite(maps.grad).all()


@pytest.mark.parametrize("hidden", [(), (8, 7)])
def test_numpy_inference_agrees_with_torch(hidden):
    config = toy_config(hidden=hidden)
    weights = random_weights(config, seed=3)
    model = AgentModel(config, seed=0)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    features = np.random.default_rng(1).normal(size=(50, DIM)).astype(np.float32)
    with torch.no_grad():
        output = model(torch.from_numpy(features))
    predictions = ConfigurationAgent(config, weights).predict(features)
    probabilities = [list(p.probabilities.values()) for p in predictions]
    np.testing.assert_allclose(probabilities, output.logits.softmax(dim=1).numpy(), atol=1e-5)
    expected = config.ranges.from_unit(output.settings.numpy())
    actual = [(p.iterations, p.exploration, p.cost_weight) for p in predictions]
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_folded_weights_do_the_same_with_plain_features():
    config = toy_config()
    features = (toy_table().features * 3 + np.arange(6)).astype(np.float32)
    scaling, weights = FeatureScaling.of(features), random_weights(config)
    scaled = ConfigurationAgent(config, weights).predict(scaling(features))
    plain = ConfigurationAgent(config, scaling.fold(weights)).predict(features)
    for one, other in zip(plain, scaled, strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-4)


def toy_fit(out_dir, *, train=None, val=None, config=None, device="cpu", progress=None, **changes):
    settings, given = toy_train_config(**changes), {"device": device, "progress": progress}
    return fit(train or toy_table(), val, config or toy_config(), settings, out_dir, **given)


def same_weights(first, second):
    return all(np.array_equal(first.agent.weights[name], second.agent.weights[name]) for name in first.agent.weights)


FAST = {"lr": 0.05, "epochs": 10}


@pytest.mark.parametrize("without", [{}, {"settings": None}])
def test_a_separable_world_is_learnt(tmp_path, without):
    train, val = toy_table(**without), toy_table(20, seed=1, prefix="val", **without)
    config = toy_config(ranges=None) if without else toy_config()
    report = toy_fit(tmp_path, train=train, val=val, config=config, **FAST)
    assert (report.monitor, report.history[report.best_epoch]["val_regret"]) == ("val_regret", 0.0)
    assert report.history[-1]["train_loss"] < report.history[0]["train_loss"] / 2
    names = agent.load(report.checkpoint).config.configurations
    assert [names.index(one.configuration) for one in report.agent.predict(val.features)] == val.label.tolist()


def test_of_epochs_of_equal_regret_the_one_of_least_loss_is_kept(tmp_path):
    # Both choices are as good for one question and bad for the other, so that no epoch has no regret.
    val = toy_table(3, seed=1, prefix="val", label=[0, 1, 1], features=np.ones((3, DIM)), quality=np.eye(2)[[0, 1, 1]])
    report = toy_fit(tmp_path, val=val, epochs=30)
    ranks = [(row["val_regret"], row["val_loss"]) for row in report.history]
    assert ranks[report.best_epoch] == min(ranks) and min(ranks)[0] == pytest.approx(1 / 3)


def test_a_training_that_was_stopped_goes_on_in_a_folder_that_was_moved(tmp_path):
    def stop(done, _):
        if done == 5:
            raise KeyboardInterrupt

    # What is learned is wrong for these, so that the first epochs are the best.
    val = toy_table(20, seed=1, prefix="val", label=np.arange(1, 21) % 2, quality=np.eye(2)[np.arange(1, 21) % 2])
    whole = toy_fit(tmp_path / "whole", val=val, lr=0.03, epochs=8)
    with pytest.raises(KeyboardInterrupt):
        toy_fit(tmp_path / "begun", val=val, lr=0.03, epochs=8, progress=stop)
    (tmp_path / "begun").rename(tmp_path / "moved")
    moved = toy_fit(tmp_path / "moved", val=val, lr=0.03, epochs=8)
    assert moved.best_epoch == whole.best_epoch < moved.epochs_resumed == 4
    assert moved.history == whole.history and same_weights(moved, whole)


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


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"val": toy_table(5)}, "both training and validation"),
        ({"val": toy_table(0, prefix="val")}, "validation table"),
        ({"config": toy_config(feature_dim=7)}, "features"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(tmp_path, arguments, named):
    with pytest.raises(InputError, match=named):
        toy_fit(tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_progress_is_told_and_each_epoch_has_its_figures(tmp_path):
    reports = []
    history = toy_fit(tmp_path, epochs=2, progress=lambda *done: reports.append(done)).history
    assert reports == [(1, 2), (2, 2)]
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
        with pytest.raises(InputError, match=named):
            toy_fit(tmp_path, **changes)
