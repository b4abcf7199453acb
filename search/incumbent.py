"""The best order so far: the one of largest worth, its value less what its cost is weighed at.

Ties: lower cost, then fewer candidates, then the lexicographically smaller order, that is, the
better-ranked candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from search.result import SearchResult
from search.tree.utility import cost_share
from search.types import FloatArray, IntArray, Order


class Incumbent:
    """The best of the orders scored so far, and what was spent on them.

    Args:
        costs: Cost of each candidate, `[num_candidates]`.
        budget: The most that an order may cost.
        cost_weight: What the whole budget takes off a value, >= 0.

    Attributes:
        value: Value of the best order; 0 before any was scored.
        num_scored: Orders seen.
        orders: The best order after each round.
    """

    def __init__(self, costs: IntArray, budget: int = 1, cost_weight: float = 0.0) -> None:
        self._costs = costs
        self._budget = budget
        self._cost_weight = cost_weight
        self._best: tuple[float, int, int, Order] = (inf, 0, 0, ())
        self.value = 0.0
        self.num_scored = 0
        self.orders: list[Order] = []

    @property
    def order(self) -> Order:
        """The best order; empty before any was scored."""
        return self._best[-1]

    @property
    def worth(self) -> float:
        """Its worth; 0 before any order was scored."""
        return -self._best[0] if self.orders else 0.0

    @property
    def cost(self) -> int:
        """Its cost."""
        return self._best[1]

    def update(self, orders: Sequence[Order], values: FloatArray) -> FloatArray:
        """Take in a round: orders and their values, `[len(orders)]`; return what they are worth, alike."""
        worths = values
        if self._cost_weight:
            costs = np.array([self._costs[list(order)].sum() for order in orders])
            worths = values - self._cost_weight * cost_share(costs, self._budget)
        leaders = np.flatnonzero(worths == worths.max()).tolist()
        best = min((self._rank(orders[leader], float(worths[leader])), leader) for leader in leaders)
        if best[0] < self._best:
            self._best, self.value = best[0], float(values[best[1]])
        self.num_scored += len(orders)
        self.orders.append(self.order)
        return worths

    def result(
        self, *, utility: float, complete: bool, num_ranked: int = 0, error: Exception | None = None
    ) -> SearchResult:
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
            num_ranked=num_ranked,
            error=error,
        )

    def _rank(self, order: Order, worth: float) -> tuple[float, int, int, Order]:
        """Smaller is better."""
        return -worth, int(self._costs[list(order)].sum()), len(order), order
