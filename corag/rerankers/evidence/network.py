"""The network that weighs hypotheses: a linear floor, and small networks that learn what it leaves.

H hidden units, M members of an ensemble, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.errors import ModelError
from corag.optional import require
from corag.types import FloatArray

CLIP = 8.0
"""Standard deviations beyond which a feature counts as no further out."""


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

    Raises:
        ModelError: The shapes do not go together, or a number is not finite.
    """

    mean: FloatArray
    scale: FloatArray
    linear: FloatArray
    bias: FloatArray
    hidden: FloatArray
    hidden_bias: FloatArray
    output: FloatArray

    def __post_init__(self) -> None:
        if self.hidden.ndim != 3:
            raise ModelError(f"hidden weights of shape {self.hidden.shape} are not [members, units, features]")
        members, units, features = self.hidden.shape
        expected = {
            "mean": (features,), "scale": (features,), "linear": (members, features), "bias": (members,),
            "hidden_bias": (members, units), "output": (members, units),
        }  # fmt: skip
        for name, shape in expected.items():
            if (found := getattr(self, name).shape) != shape:
                raise ModelError(f"tensor {name!r} has shape {found}, but the hidden weights want {shape}")
        for name in ("hidden", *expected):
            if not np.isfinite(getattr(self, name)).all():
                raise ModelError(f"tensor {name!r} holds numbers that are not finite")
        if not (self.scale > 0).all():
            raise ModelError("tensor 'scale' holds numbers that are not above 0")

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]]) -> Ensemble:
        """Return the network whose tensors are named as the attributes.

        Raises:
            ModelError: One is missing, or they do not go together.
        """
        names = cls.__slots__
        if missing := [name for name in names if name not in tensors]:
            raise ModelError(f"tensor {missing[0]!r} is missing")
        return cls(**{name: np.asarray(tensors[name], dtype=np.float64) for name in names})

    @property
    def num_features(self) -> int:
        """How many features it wants."""
        return len(self.mean)

    def __call__(self, features: FloatArray) -> FloatArray:
        """Return the logit of each row, `[N, F]` to `[N]`."""
        x = np.clip((features - self.mean) / self.scale, -CLIP, CLIP)
        # The members side by side: one product instead of one for each.
        units = gelu(x @ self.hidden.reshape(-1, self.num_features).T + self.hidden_bias.ravel())
        linear = x @ self.linear.mean(axis=0) + self.bias.mean()
        return np.asarray(linear + units @ (self.output.ravel() / len(self.hidden)))

    def on(self, device: str) -> Callable[[FloatArray], FloatArray]:
        """Return the network as it runs on a device: on the CPU as it is, else through PyTorch in fp32."""
        return self if device == "cpu" else self._through_torch(device)

    def _through_torch(self, device: str) -> Callable[[FloatArray], FloatArray]:
        torch = require("torch", "models")

        def there(values: FloatArray) -> Any:
            return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).to(device)

        mean, scale = there(self.mean), there(self.scale)
        linear, bias = there(self.linear.mean(axis=0)), float(self.bias.mean())
        hidden, hidden_bias = there(self.hidden.reshape(-1, self.num_features).T), there(self.hidden_bias.ravel())
        output = there(self.output.ravel() / len(self.hidden))

        def run(features: FloatArray) -> FloatArray:
            with torch.inference_mode():
                x = torch.clamp((there(features) - mean) / scale, -CLIP, CLIP)
                units = torch.nn.functional.gelu(x @ hidden + hidden_bias, approximate="tanh")
                return np.asarray((x @ linear + bias + units @ output).cpu().numpy(), dtype=np.float64)

        return run


def gelu(x: FloatArray) -> FloatArray:
    """Gaussian error linear unit in the form with tanh (Hendrycks and Gimpel, 2016)."""
    # NumPy raises to powers forty times as slowly as it multiplies.
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * x * (1 + 0.044715 * x * x))))
