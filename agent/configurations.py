"""Configurations: the ranges of the search settings, the best fixed one, and the grid of those measured. NumPy only.

Letters: `n` and `b` rows, `C` configurations. The columns of a settings array are always `SETTINGS`, in that order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent.errors import AgentError, require_int, require_number

SETTINGS = ("iterations", "exploration", "cost_weight")
"""Columns of every settings array: paper 5.1, the number of iterations, c and lambda of eq. 5."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Lowest and highest value of each search setting that the agent may predict.

    Attributes:
        iterations: Search iterations, integers of at least 1; regressed on a log scale, since ten iterations more
            matter at 10 and not at 1000.
        exploration: c of eq. 5, at least 0; linear scale.
        cost_weight: lambda of eq. 5, at least 0; linear scale.
    """

    iterations: tuple[int, int]
    exploration: tuple[float, float]
    cost_weight: tuple[float, float]

    def __post_init__(self) -> None:
        for name in SETTINGS:
            bounds = getattr(self, name)
            if not isinstance(bounds, tuple) or len(bounds) != 2:
                raise AgentError(f"ranges.{name} must be a pair (low, high), got {bounds!r}")
            for bound in bounds:
                if name == "iterations":
                    require_int(f"each end of ranges.{name}", bound, 1)
                else:
                    require_number(f"each end of ranges.{name}", bound)
            if bounds[0] > bounds[1]:
                raise AgentError(f"ranges.{name} must have low <= high, got {bounds!r}; swap the two")

    def to_unit(self, settings: ArrayLike) -> FloatArray:
        """Return settings `[n, 3]` in natural units on the scale [0, 1]; a range of one value maps to 0."""
        low, high = _scaled(self._bounds())
        span = np.where(high > low, high - low, 1.0)
        return np.asarray((_scaled(settings) - low) / span)

    def from_unit(self, unit: ArrayLike) -> FloatArray:
        """Return settings `[n, 3]` in natural units for values in [0, 1]; iterations are whole numbers.

        The result is clipped to the ranges, because exp(log x) may miss x by a rounding error.
        """
        low, high = _scaled(self._bounds())
        settings = low + np.asarray(unit, dtype=np.float64) * (high - low)
        settings[:, 0] = np.rint(np.exp(settings[:, 0]))
        return np.asarray(np.clip(settings, *self._bounds()))

    def contains(self, settings: ArrayLike) -> NDArray[np.bool_]:
        """Return for each row of settings `[n, 3]` whether all three lie within the ranges, `[n]`."""
        low, high = self._bounds()
        # A float32 table may round a bound such as 0.3 to just outside.
        slack = 1e-6 * np.maximum(np.abs(low), np.abs(high))
        values = np.asarray(settings, dtype=np.float64)
        return np.asarray(((values >= low - slack) & (values <= high + slack)).all(axis=1))

    def _bounds(self) -> FloatArray:
        return np.array([self.iterations, self.exploration, self.cost_weight], dtype=np.float64).T


def _scaled(settings: ArrayLike) -> FloatArray:
    scaled = np.array(settings, dtype=np.float64)
    scaled[:, 0] = np.log(scaled[:, 0])
    return scaled


@dataclass(frozen=True, slots=True)
class FixedConfiguration:
    """One configuration for every question, which the agent has to beat; settings as in `Ranges`."""

    reranker: str
    iterations: int
    exploration: float
    cost_weight: float

    def __post_init__(self) -> None:
        require_int("fixed.iterations", self.iterations, 1)
        require_number("fixed.exploration", self.exploration)
        require_number("fixed.cost_weight", self.cost_weight)


@dataclass(frozen=True, eq=False)
class ConfigurationGrid:
    """Measured configurations: reranker labels, int64 `[C]`, and settings in natural units, float32 `[C, 3]`."""

    reranker: NDArray[np.int64]
    settings: NDArray[np.float32]

    def __post_init__(self) -> None:
        object.__setattr__(self, "reranker", np.ascontiguousarray(self.reranker, dtype=np.int64))
        object.__setattr__(self, "settings", np.ascontiguousarray(self.settings, dtype=np.float32))
        if self.reranker.ndim != 1 or self.settings.shape != (len(self.reranker), len(SETTINGS)):
            raise AgentError(
                f"a grid needs one label and {len(SETTINGS)} settings per configuration, got shapes "
                f"{self.reranker.shape} and {self.settings.shape}"
            )

    def __len__(self) -> int:
        return len(self.reranker)

    def nearest(self, reranker: ArrayLike, settings: ArrayLike, ranges: Ranges) -> NDArray[np.int64]:
        """Return the measured configuration that stands for each predicted one, `[b]`.

        It has the same reranker, `[b]`, and the settings, `[b, 3]`, nearest on the scale [0, 1] of `ranges`; among
        equals the first counts. A reranker without measured configurations is an `AgentError`.
        """
        labels = np.asarray(reranker)
        missing = np.setdiff1d(labels, self.reranker)
        if missing.size:
            raise AgentError(
                f"reranker label {missing[0]} has no measured configuration; label with it, or leave it out"
            )
        apart = ranges.to_unit(settings)[:, None] - ranges.to_unit(self.settings)[None]
        distance = np.where(self.reranker == labels[:, None], np.square(apart).sum(axis=-1), np.inf)
        return np.asarray(distance.argmin(axis=1), dtype=np.int64)
