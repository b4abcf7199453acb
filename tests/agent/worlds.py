"""A separable toy world: the sign of the first feature says which configuration is best."""

import numpy as np

from agent import AgentConfig, ConfigurationAgent, Ranges, TrainConfig, TrainingTable

DIM = 6
RANGES = Ranges(iterations=(1, 64), exploration=(0.0, 3.0), cost_weight=(0.0, 0.3))


def toy_config(**changes):
    settings = {"embedder": "toy", "hidden": (8, 7), "map_dim": 5, "ranges": RANGES, **changes}
    settings |= {"fallback": "first", "fallback_settings": (10, 2.4, 0.1) if settings["ranges"] else None}
    return AgentConfig(**{"configurations": ("first", "second"), "feature_dim": DIM, **settings})


def toy_train_config(**changes):
    return TrainConfig(**{"lr": 0.01, "batch_size": 8, "epochs": 12, **changes})


def toy_table(num_rows=40, seed=0, prefix="q", **changes):
    rng = np.random.default_rng(seed)
    label = np.arange(num_rows) % 2
    features = rng.normal(scale=0.1, size=(num_rows, DIM))
    features[:, 0] += np.where(label == 1, 1.0, -1.0)
    columns = {
        "features": features,
        "label": label,
        "settings": np.where(label[:, None] == 1, [[16.0, 2.0, 0.3]], [[4.0, 1.0, 0.1]]),
        "weight": np.ones(num_rows),
        "quality": np.eye(2)[label],
        "ids": tuple(f"{prefix}{row}" for row in range(num_rows)),
    }
    return TrainingTable(**{**columns, **changes})


def random_weights(config, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(scale=scale, size=shape).astype(np.float32) for name, shape in config.tensor_shapes.items()
    }


def random_agent(config=None, **settings):
    config = config or toy_config()
    return ConfigurationAgent(config, random_weights(config, **settings))
