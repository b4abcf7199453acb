"""Scaling features for training, and taking the scaling into the weights afterwards. NumPy only.

Letters: `n` rows, `d` features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]

FIRST_LAYER = "encoder.0"
CONSTANT = 1e-6
"""A feature that deviates by less is constant: it is left out, since stretching it would enlarge rounding errors."""


@dataclass(frozen=True, eq=False)
class FeatureScaling:
    """Takes features to mean 0 and deviation 1 / sqrt(d).

    Attributes:
        mean: Of each feature, `[d]`.
        factor: What it is multiplied by after the mean is taken off, `[d]`; 0 for a constant feature.
    """

    mean: Float32
    factor: Float32

    @classmethod
    def of(cls, features: Float32) -> FeatureScaling:
        """Return the scaling that training features `[n, d]` ask for."""
        deviation = features.std(axis=0, dtype=np.float64)
        varies = deviation > CONSTANT
        factor = np.divide(1 / np.sqrt(features.shape[1]), deviation, out=np.zeros_like(deviation), where=varies)
        return cls(features.mean(axis=0, dtype=np.float64).astype(np.float32), factor.astype(np.float32))

    def __call__(self, features: Float32) -> Float32:
        """Return scaled features, `[n, d]`."""
        return (features - self.mean) * self.factor

    def fold(self, weights: Mapping[str, Float32]) -> dict[str, Float32]:
        """Return weights that do with plain features what the given ones do with scaled features."""
        weight = weights[f"{FIRST_LAYER}.weight"].astype(np.float64) * self.factor
        bias = weights[f"{FIRST_LAYER}.bias"] - weight @ self.mean
        folded = {f"{FIRST_LAYER}.weight": weight.astype(np.float32), f"{FIRST_LAYER}.bias": bias.astype(np.float32)}
        return {**weights, **folded}
