"""The training table: feature vectors and labels, checked on construction, and the scaling of features. NumPy only.

Letters: `n` questions, `d` features, `R` configurations of the agent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.config import SETTINGS, AgentConfig
from common.errors import InputError

Float32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """What is known about the questions of one split.

    Attributes:
        features: Feature vectors, float32 `[n, d]`.
        label: Index of each question's best configuration, int64 `[n]`.
        weight: How much a question counts for the label and for pairs, at least 0, float32 `[n]`. A question whose best
            and next best configuration are too close has weight 0 (paper 5.2.2) and then teaches the settings only.
        ids: Name of each question, `n` of them.
        quality: Answer quality with each configuration, by its best settings, higher is better, float32 `[n, R]`, or
            None.
        settings: Each question's best iterations, exploration and cost weight in natural units, float32 `[n, 3]`; None
            for an agent that does not predict them.
    """

    features: Float32
    label: NDArray[np.int64]
    weight: Float32
    ids: tuple[str, ...]
    quality: Float32 | None = None
    settings: Float32 | None = None

    def __post_init__(self) -> None:
        for name, array in self.arrays.items():
            dtype = np.int64 if name == "label" else np.float32
            object.__setattr__(self, name, np.ascontiguousarray(array, dtype=dtype))
            if len(array) != len(self.ids) or not np.isfinite(array).all():
                raise InputError(f"{name} has {len(array)} rows; give {len(self.ids)}, one for each id, all finite")
        for name in ("label", "weight"):
            if (getattr(self, name) < 0).any():
                raise InputError(f"{name} must be at least 0, got {getattr(self, name).min()}")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The columns that the table has, by name; each has a row for each question."""
        names = ("features", "label", "weight", "quality", "settings")
        return {name: array for name in names if (array := getattr(self, name)) is not None}

    def digest(self) -> str:
        """Return the SHA-256 of the whole content, hexadecimal."""
        sha = hashlib.sha256("\n".join(self.ids).encode())
        for name, array in self.arrays.items():
            sha.update(f"{name} {array.shape}".encode())
            sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()

    def check_fits(self, config: AgentConfig) -> None:
        """Raise an `InputError` unless the columns are those of an agent of this configuration."""
        number = len(config.configurations)
        widths = {"features": config.feature_dim, "quality": number, "settings": len(SETTINGS)}
        for name, width in widths.items():
            array = self.arrays.get(name)
            if array is not None and array.shape[1] != width:
                raise InputError(f"expected {name} of {width} columns, got {array.shape[1]}")
        if len(self) and self.label.max() >= number:
            raise InputError(f"label {self.label.max()} must be below {number}, the number of configurations")
        if (self.settings is None) != (config.ranges is None):
            raise InputError("the table's settings and the agent's ranges belong together; give both or neither")

    def check_trainable(self) -> None:
        """Raise an `InputError` unless there are two questions and two configurations to tell apart."""
        if len(self) < 2:
            raise InputError(f"training needs at least 2 questions, got {len(self)}; label more")
        if len(np.unique(self.label[self.weight > 0])) < 2:
            raise InputError(
                "training needs at least 2 different best configurations among the questions with weight > 0; "
                "label more questions or lower the bar for counting one"
            )

    def of(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> TrainingTable:
        """Return some questions, given by a mask `[n]` or by their indices."""
        chosen = np.arange(len(self))[rows]
        kept: dict[str, Any] = {name: array[chosen] for name, array in self.arrays.items()}
        return replace(self, ids=tuple(self.ids[row] for row in chosen), **kept)


@dataclass(frozen=True, eq=False)
class FeatureScaling:
    """Scales features to mean 0 and deviation 1 / sqrt(d): subtract `mean` `[d]`, multiply by `factor` `[d]`.

    The factor of a constant feature (deviation up to 1e-6) is 0, since stretching it would enlarge rounding errors.
    """

    mean: Float32
    factor: Float32

    @classmethod
    def of(cls, features: Float32) -> FeatureScaling:
        """Return the scaling for training features `[n, d]`."""
        deviation = features.std(axis=0, dtype=np.float64)
        varies = deviation > 1e-6
        factor = np.divide(1 / np.sqrt(features.shape[1]), deviation, out=np.zeros_like(deviation), where=varies)
        return cls(features.mean(axis=0, dtype=np.float64).astype(np.float32), factor.astype(np.float32))

    def __call__(self, features: Float32) -> Float32:
        """Return scaled features, `[n, d]`."""
        return (features - self.mean) * self.factor

    def fold(self, weights: Mapping[str, Float32]) -> dict[str, Float32]:
        """Return weights that do with plain features what the given ones do with scaled features."""
        weight = weights["encoder.0.weight"].astype(np.float64) * self.factor
        bias = weights["encoder.0.bias"] - weight @ self.mean
        return {**weights, "encoder.0.weight": weight.astype(np.float32), "encoder.0.bias": bias.astype(np.float32)}
