"""The network, its losses and its training."""

import csv
import logging
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lightning.pytorch.loggers import CSVLogger
from scipy.spatial.distance import mahalanobis

import agent
from agent import AgentModel, ConfigurationAgent, fit
from agent.losses import choice_loss, contrastive_loss, regret_loss, soft_target
from agent.training.data import FeatureScaling, known_texts
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
    assert choice_loss(logits, labels, torch.tensor([0.0, 1.0])).item() == pytest.approx(half)
    assert choice_loss(logits, labels, torch.zeros(2)).item() == 0.0


def test_soft_targets_and_regret_worked_by_hand():
    # Qualities apart by ln 3 at temperature 1: the odds are 3 to 1; at half of it 9 to 1.
    quality = torch.tensor([[0.0, np.log(3.0)]])
    torch.testing.assert_close(soft_target(quality, 1.0), torch.tensor([[0.25, 0.75]]))
    torch.testing.assert_close(soft_target(quality, 0.5), torch.tensor([[0.1, 0.9]]))
    logits, half, labels = torch.tensor([[0.0, np.log(3.0)]]), torch.tensor([[0.5, 0.5]]), torch.tensor([1])
    loss = choice_loss(logits, labels, torch.ones(1), target=half)
    assert loss.item() == pytest.approx(0.5 * np.log(4) + 0.5 * np.log(4 / 3))
    # Drawn with probabilities (1/4, 3/4) and (1/2, 1/2), of which the second row loses nothing either way.
    logits = torch.tensor([[0.0, np.log(3.0)], [0.0, 0.0]])
    lost = regret_loss(logits, torch.tensor([[0.2, 0.6], [0.7, 0.7]]))
    assert lost.item() == pytest.approx(0.25 * 0.4 / 2)


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


def toy_fit(out_dir, *, train=None, val=None, config=None, device="cpu", precision="32-true", **changes):
    placement = {"device": device, "precision": precision}
    return fit(train or toy_table(), val, config or toy_config(), toy_train_config(**changes), out_dir, **placement)


def same_weights(first, second):
    return all(np.array_equal(first.agent.weights[name], second.agent.weights[name]) for name in first.agent.weights)


FAST = {"lr": 0.05, "epochs": 10}


@pytest.mark.parametrize(
    ("changes", "without"), [({}, {}), ({"temperature": 0.2}, {"settings": None}), ({"regret_weight": 1.0}, {})]
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
        with pytest.raises(InputError, match="trainer"):
            fit(toy_table(), None, toy_config(), toy_train_config(), tmp_path / "wrong", trainer=wrong)


def test_callbacks_are_imported_from_trusted_modules_only(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CORAG_CALLBACK_MODULES", "other, ")
    code = f"import pathlib, lightning.pytorch as pl\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
    for name in ("own_lab", "lightningx", "os_"):
        (tmp_path / f"{name}.py").write_text(code + "class Mine(pl.Callback): pass\n")
    for name in ("own_lab.Mine", "lightningx.Mine", "os_.Mine", "..own_lab.Mine", " own_lab.Mine"):
        trainer = {"callbacks": [{"class_path": name}]}
        with pytest.raises(InputError, match="CORAG_CALLBACK_MODULES"):
            fit(toy_table(), None, toy_config(), toy_train_config(), tmp_path / "wrong", trainer=trainer)
    assert not (tmp_path / "ran").exists()
    monkeypatch.setenv("CORAG_CALLBACK_MODULES", "other, own_lab")
    trainer = {"callbacks": [{"class_path": "own_lab.Mine"}]}
    fit(toy_table(), None, toy_config(), toy_train_config(epochs=1), tmp_path / "right", trainer=trainer)
    assert (tmp_path / "ran").exists()


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
    with pytest.raises(InputError, match=named):
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
        with pytest.raises(InputError, match=named):
            toy_fit(tmp_path, **changes)


@pytest.mark.parametrize(("inputs", "components"), [(None, 0), (4, 5)])
def test_novelty_is_the_mahalanobis_distance_to_the_nearest_known_text(inputs, components):
    random, dim = np.random.default_rng(0), 12
    text = np.repeat([0, 1, 2], 30)
    features = (random.normal(size=(90, dim)) * (1 + np.arange(dim)) + 9.0 * text[:, None]).astype(np.float32)
    known = {"feature_dim": dim, "inputs": inputs, "components": components}
    config = toy_config(ranges=None, novelty=0.5, texts=3, filling="second", **known)
    weights = random_weights(config) | known_texts(features, text, config)
    asked = random.normal(size=(5, dim)) * 5
    # Worked out another way: covariance within texts of standardized features, a third of the identity added, and the
    # principal components of what the network does not read.
    seen, rows = features.astype(np.float64), asked
    if inputs is not None:
        axes = np.linalg.svd(seen[:, inputs:] - seen[:, inputs:].mean(axis=0))[2][:components].T
        seen, rows = (np.hstack([of[:, :inputs], of[:, inputs:] @ axes]) for of in (seen, rows))
    deviation = seen.std(axis=0)
    centres = np.stack([seen[text == number].mean(axis=0) for number in range(3)]) / deviation
    within = seen / deviation - centres[text]
    inverse = np.linalg.inv(within.T @ within / 90 + 0.3 * np.eye(len(deviation)))
    nearest = [min(mahalanobis(row / deviation, centre, inverse) for centre in centres) for row in rows]
    expected = np.array(nearest) / len(deviation) ** 0.5
    np.testing.assert_allclose(ConfigurationAgent(config, weights).novelty(asked), expected, rtol=1e-4)
