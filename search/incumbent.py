"""The best order so far of a search without a tree."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from search.result import SearchResult
from search.types import FloatArray, IntArray, Order


class Incumbent:
    """The order of largest net value so far, and what was spent on finding it.

    Ties: lower cost, then fewer candidates, then the lexicographically smaller order, that is, the better-ranked
    candidates.

    "Best" is by net value: value - cost_weight * cost / budget.

    Attributes:
        value: Value of the best order; 0 before any was scored.
        num_scored: Orders seen.
        orders: The best order after each round.
    """

    def __init__(self, costs: IntArray, budget: int = 1, cost_weight: float = 0.0) -> None:
        self._costs, self._budget, self._cost_weight = costs, budget, cost_weight
        self._best: tuple[float, int, int, Order] = (inf, 0, 0, ())
        self.value = 0.0
        self.num_scored = 0
        self.orders: list[Order] = []

    @property
    def order(self) -> Order:
        """The best order; empty before any was scored."""
        return self._best[-1]

    @property
    def net_value(self) -> float:
        """Net value of the best order; 0 before any was scored."""
        return -self._best[0] if self.orders else 0.0

    @property
    def cost(self) -> int:
        """Cost of the best order."""
        return self._best[1]

    def update(self, orders: Sequence[Order], values: FloatArray) -> FloatArray:
        """Add a round of orders and their values, `[len(orders)]`, and return their net values, likewise."""
        net = values
        if self._cost_weight:
            costs = np.array([self._costs[list(order)].sum() for order in orders])
            net = values - self._cost_weight * (costs / self._budget)
        for leader in np.flatnonzero(net == net.max()).tolist():
            order = orders[leader]
            rank = (-float(net[leader]), int(self._costs[list(order)].sum()), len(order), order)
            if rank < self._best:
                self._best, self.value = rank, float(values[leader])
        self.num_scored += len(orders)
        self.orders.append(self.order)
        return net

    def result(self, *, utility: float, complete: bool) -> SearchResult:
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
        )
