"""A surrogate's guesses at the values of orders, the prior mean of policy `bayesian`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search.orders import OrderSpace
from search.surrogate import Surrogate
from search.types import FloatArray, IntArray, Order

BEAM_WIDTH = 16
FARTHEST = 100.0
"""Guesses are clipped to so many standard deviations: one outlier would drown all others."""
SAME = 1e-12
"""Guesses that differ by less than this share of the largest differ by rounding."""


class PriorMean:
    """What a surrogate says, shifted and scaled so that the orders it is first asked for have standard deviation 1.

    The surrogate knows the candidates of the pool by their `names`, `[C]`.
    """

    def __init__(self, surrogate: Surrogate, names: IntArray) -> None:
        self._surrogate, self._names = surrogate, names.tolist()
        self._scale: tuple[float, float] | None = None

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return the guesses, `[len(orders)]`."""
        if not orders:
            return np.zeros(0)
        values = self._raw(orders)
        if self._scale is None:
            self._scale = _median_and_deviation(values)
        median, deviation = self._scale
        return np.clip((values / 2 - median / 2) / deviation, -FARTHEST, FARTHEST)

    def beam(self, space: OrderSpace) -> list[Order]:
        """Return the orders that a beam search by the surrogate goes through."""
        front: list[Order] = [()]
        found: list[Order] = []
        while orders := [child for order in front for child in space.children(order)]:
            best = np.argsort(-self._raw(orders), kind="stable")[:BEAM_WIDTH].tolist()
            front = [orders[place] for place in best]
            found += front
        return found

    def _raw(self, orders: Sequence[Order]) -> FloatArray:
        return self._surrogate([tuple(self._names[chunk] for chunk in order) for order in orders])


def _median_and_deviation(values: FloatArray) -> tuple[float, float]:
    """Median of the values, and standard deviation of their halves, which cannot overflow; inf for equal ones."""
    median = float(np.median(values))
    halves = values / 2 - median / 2
    unit = float(np.abs(halves).max())
    if unit <= SAME * float(np.abs(values).max()):
        return median, np.inf
    return median, unit * float((halves / unit).std())
