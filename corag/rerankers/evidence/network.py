"""The network that weighs hypotheses: a linear floor, and small networks that learn what it leaves.

H hidden units, M members of an ensemble, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.models.engine import Float32
from corag.optional import require
from corag.types import FloatArray

CLIP = 8.0
"""Standard deviations beyond which a feature counts as no further out."""

_ROWS = 256
"""Rows at a time on a CPU, so that what is between them stays in its caches."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Mean of M networks `linear(x) + output(gelu(hidden(x)))` over standardised features.

    Attributes:
        mean: Of each feature in the training data, `[F]`.
        scale: Its standard deviation, `[F]`.
        linear: Weights of the linear parts, `[M, F]`.
        bias: `[M]`.
        hidden: Weights into the hidden units, `[M, H, F]`.
        hidden_bias: `[M, H]`.
        output: Weights out of them, `[M, H]`.
    """

    mean: FloatArray
    scale: FloatArray
    linear: FloatArray
    bias: FloatArray
    hidden: FloatArray
    hidden_bias: FloatArray
    output: FloatArray

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]]) -> Ensemble:
        """Return the network whose tensors are named as the attributes; `KeyError` if one is missing."""
        return cls(**{name: np.asarray(tensors[name], dtype=np.float64) for name in cls.__slots__})

    def __call__(self, features: Float32) -> FloatArray:
        """Return the logit of each row, `[N, F]` to `[N]`."""
        return self.on("cpu")(features)

    def on(self, device: str) -> Callable[[Float32], FloatArray]:
        """Return the network as it runs on a device, in fp32: on the CPU through NumPy, else through PyTorch."""
        # The members side by side: one product instead of one for each.
        hidden, output = self.hidden.reshape(-1, len(self.mean)).T, self.output.ravel() / len(self.hidden)
        parts = (self.mean, self.scale, self.linear.mean(axis=0), hidden, self.hidden_bias.ravel(), output)
        arrays = [np.ascontiguousarray(part, dtype=np.float32) for part in parts]
        bias = float(self.bias.mean())
        return _through_numpy(bias, *arrays) if device == "cpu" else _through_torch(bias, device, *arrays)


def _through_numpy(bias: float, *arrays: Float32) -> Callable[[Float32], FloatArray]:
    mean, scale, linear, hidden, hidden_bias, output = arrays

    def standard(features: Float32, columns: NDArray[np.bool_]) -> Float32:
        x: Float32 = features[:, columns] - mean[columns]
        x /= scale[columns]
        return np.minimum(np.maximum(x, -CLIP, out=x), CLIP, out=x)

    def run(features: Float32) -> FloatArray:
        logits = np.empty(len(features))
        # Many features are the same for all sets of one size: what they add is worked out once.
        varies = (features != features[:1]).any(axis=0)
        same = standard(features[:1], ~varies)
        hidden_of_same, logit_of_same = same @ hidden[~varies] + hidden_bias, same @ linear[~varies] + bias
        into_hidden, into_logit = hidden[varies], linear[varies]
        for start in range(0, len(features), _ROWS):
            rows = slice(start, start + _ROWS)
            x = standard(features[rows], varies)
            units: Float32 = x @ into_hidden
            units += hidden_of_same
            logits[rows] = x @ into_logit + gelu(units) @ output + logit_of_same
        return logits

    return run


def _through_torch(bias: float, device: str, *arrays: Float32) -> Callable[[Float32], FloatArray]:
    torch = require("torch", "models")
    mean, scale, linear, hidden, hidden_bias, output = (torch.from_numpy(part).to(device) for part in arrays)

    def run(features: Float32) -> FloatArray:
        with torch.inference_mode():
            x = torch.clamp((torch.from_numpy(features).to(device) - mean) / scale, -CLIP, CLIP)
            units = torch.nn.functional.gelu(x @ hidden + hidden_bias, approximate="tanh")
            return np.asarray((x @ linear + bias + units @ output).cpu().numpy(), dtype=np.float64)

    return run


def gelu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Gaussian error linear unit in the form with tanh (Hendrycks and Gimpel, 2016)."""
    # NumPy raises to powers forty times as slowly as it multiplies, and new arrays cost more than the arithmetic.
    found = x * x
    found *= np.float32(np.sqrt(2 / np.pi) * 0.044715)
    found += np.float32(np.sqrt(2 / np.pi))
    found *= x
    np.tanh(found, out=found)
    found += 1
    found *= x
    found *= np.float32(0.5)
    return found
