import numpy as np
import pytest
import torch

from agent import AgentModel, ConfigurationAgent
from agent.training.data import FeatureScaling
from tests.agent.worlds import DIM, random_weights, toy_config, toy_table

pytestmark = pytest.mark.slow


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
