"""The ranges of the search settings and the scale [0, 1] on which the agent regresses them.

Letters: `n` rows. The columns of a settings array are always `SETTINGS`, in that order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent.checks import require_int, require_number
from agent.errors import AgentError

SETTINGS = ("iterations", "exploration", "cost_weight")
"""Columns of every settings array: paper 5.1, the number of iterations, c and lambda of eq. 5."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Lowest and highest value of each search setting that the agent may predict.

    Attributes:
        iterations: Search iterations, integers of at least 1; regressed on a log scale, since ten
            iterations more matter at 10 and not at 1000.
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
        low, high = self._scaled_bounds()
        span = np.where(high > low, high - low, 1.0)
        return np.asarray((_scaled(settings) - low) / span)

    def from_unit(self, unit: ArrayLike) -> FloatArray:
        """Return settings `[n, 3]` in natural units for values in [0, 1]; iterations are whole numbers.

        The result is clipped to the ranges, because exp(log x) may miss x by a rounding error.
        """
        low, high = self._scaled_bounds()
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

    def _scaled_bounds(self) -> FloatArray:
        return _scaled(self._bounds())


def _scaled(settings: ArrayLike) -> FloatArray:
    scaled = np.array(settings, dtype=np.float64)
    scaled[:, 0] = np.log(scaled[:, 0])
    return scaled


@dataclass(frozen=True, slots=True)
class FixedConfiguration:
    """One configuration for every question: what the agent has to beat.

    Attributes:
        reranker: Name of the reranker.
        iterations: Search iterations, at least 1.
        exploration: c of eq. 5, at least 0.
        cost_weight: lambda of eq. 5, at least 0.
    """

    reranker: str
    iterations: int
    exploration: float
    cost_weight: float

    def __post_init__(self) -> None:
        require_int("fixed.iterations", self.iterations, 1)
        require_number("fixed.exploration", self.exploration)
        require_number("fixed.cost_weight", self.cost_weight)
