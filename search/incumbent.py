"""The best order so far.

Ties: lower cost, then fewer candidates, then the lexicographically smaller order, that is, the
better-ranked candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from search.result import SearchResult
from search.types import FloatArray, IntArray, Order


class Incumbent:
    """The best of the orders scored so far, and what was spent on them.

    Args:
        costs: Cost of each candidate, `[num_candidates]`.

    Attributes:
        num_scored: Orders seen.
        orders: The best order after each round.
    """

    def __init__(self, costs: IntArray) -> None:
        self._costs = costs
        self._best: tuple[float, int, int, Order] = (inf, 0, 0, ())
        self.num_scored = 0
        self.orders: list[Order] = []

    @property
    def order(self) -> Order:
        """The best order; empty before any was scored."""
        return self._best[-1]

    @property
    def value(self) -> float:
        """Its value; 0 before any order was scored."""
        return -self._best[0] if self.orders else 0.0

    @property
    def cost(self) -> int:
        """Its cost."""
        return self._best[1]

    def update(self, orders: Sequence[Order], values: FloatArray) -> None:
        """Take in a round: orders and their values, `[len(orders)]`."""
        leaders = np.flatnonzero(values == values.max()).tolist()
        self._best = min(self._best, *(self._rank(orders[leader], float(values[leader])) for leader in leaders))
        self.num_scored += len(orders)
        self.orders.append(self.order)

    def result(self, *, utility: float, complete: bool, error: Exception | None = None) -> SearchResult:
        """Return the result of a search without a tree."""
        return SearchResult(
            order=self.order,
            value=self.value,
            utility=utility,
            cost=self.cost,
            num_scored=self.num_scored,
            num_calls=len(self.orders),
            incumbents=tuple(self.orders),
            complete=complete,
            error=error,
        )

    def _rank(self, order: Order, value: float) -> tuple[float, int, int, Order]:
        """Smaller is better."""
        return -value, int(self._costs[list(order)].sum()), len(order), order
