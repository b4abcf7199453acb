"""A surrogate's guesses at the values of orders, as policy `bayesian` takes them in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search.bayesian.space import Space, children_of
from search.surrogate import Surrogate
from search.types import FloatArray, IntArray, Order

BEAM_WIDTH = 16
FARTHEST = 100.0
"""Guesses farther out than so many deviations are drawn in: one outlier would drown all others."""
SAME = 1e-12
"""Guesses that differ by less than this share of the largest differ by rounding."""


class Guesses:
    """What a surrogate says, shifted and stretched so that the orders it is first asked for vary by 1.

    Args:
        surrogate: The surrogate.
        names: What it calls the candidates of the pool, `[C]`.
    """

    def __init__(self, surrogate: Surrogate, names: IntArray) -> None:
        self._surrogate, self._names = surrogate, names.tolist()
        self._line: tuple[float, float] | None = None

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return the guesses, `[len(orders)]`."""
        if not orders:
            return np.zeros(0)
        values = self._raw(orders)
        if self._line is None:
            self._line = _line(values)
        middle, spread = self._line
        return np.clip((values / 2 - middle / 2) / spread, -FARTHEST, FARTHEST)

    def beam(self, space: Space) -> list[Order]:
        """Return the orders that a beam of the surrogate's best goes through."""
        children = children_of(space.costs, space.budget, space.max_length)
        front: list[Order] = [()]
        found: list[Order] = []
        while orders := [child for order in front for child in children(order)]:
            best = np.argsort(-self._raw(orders), kind="stable")[:BEAM_WIDTH].tolist()
            front = [orders[place] for place in best]
            found += front
        return found

    def _raw(self, orders: Sequence[Order]) -> FloatArray:
        return self._surrogate([tuple(self._names[chunk] for chunk in order) for order in orders])


def _line(values: FloatArray) -> tuple[float, float]:
    """Middle of the values, and the standard deviation of their halves, which cannot overflow; inf for equal ones."""
    middle = float(np.median(values))
    halves = values / 2 - middle / 2
    unit = float(np.abs(halves).max())
    if unit <= SAME * float(np.abs(values).max()):
        return middle, np.inf
    return middle, unit * float((halves / unit).std())
