import numpy as np
import pytest

from agent import ConfigurationAgent, fit
from agent.training.data import FeatureScaling
from agent.training.loggers import diagnose
from tests.agent.worlds import random_weights, toy_config, toy_table, toy_train_config

pytestmark = pytest.mark.slow


def test_features_come_out_as_long_as_embeddings():
    features = np.random.default_rng(0).normal([0, 5, -3, 1e3], [1, 0.01, 40, 2], size=(500, 4)).astype(np.float32)
    scaled = FeatureScaling.of(features)(features)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(scaled.std(axis=0), 0.5, rtol=1e-3)
    assert np.square(scaled).sum(axis=1).mean() == pytest.approx(1, rel=1e-3)


def test_a_constant_feature_is_left_out():
    features = np.array([[1.0, 7.0], [3.0, 7.0]], dtype=np.float32)
    scaling = FeatureScaling.of(features)
    np.testing.assert_allclose(scaling(features), [[-np.sqrt(0.5), 0], [np.sqrt(0.5), 0]], rtol=1e-6)
    assert scaling(np.array([[2.0, 9.0]], dtype=np.float32)).tolist() == [[0.0, 0.0]]


def test_folded_weights_do_the_same_with_plain_features():
    config = toy_config()
    features = (toy_table().features * 3 + np.arange(6)).astype(np.float32)
    scaling, weights = FeatureScaling.of(features), random_weights(config)
    scaled = ConfigurationAgent(config, weights).feature_maps(scaling(features))
    plain = ConfigurationAgent(config, scaling.fold(weights)).feature_maps(features)
    np.testing.assert_allclose(plain, scaled, rtol=1e-4, atol=1e-4)


def test_a_world_of_tiny_differences_is_learnt_when_scaled(tmp_path):
    # The sign that decides is a thousandth of what it stands beside.
    def table(rows, seed, prefix):
        toy = toy_table(rows, seed, prefix)
        return toy_table(rows, seed, prefix, features=toy.features * 1e-3 + 1)

    train, val = table(40, 0, "q"), table(20, 1, "val")
    plain = fit(train, val, toy_config(), toy_train_config(epochs=40), tmp_path / "plain")
    scaled = fit(train, val, toy_config(), toy_train_config(epochs=40, standardize=True), tmp_path / "scaled")
    assert scaled.history[scaled.best_epoch]["val_regret"] == 0.0 < plain.history[plain.best_epoch]["val_regret"]
    assert diagnose(scaled.agent, val).regret.max() == 0.0
