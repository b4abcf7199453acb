"""The loop of the policies without a tree, and the simplest of them, `beam`.

A policy is a generator of rounds: it yields orders that it has not yielded before, the most wanted first, and
receives their net values once the incumbent knows them. The net value, which the policy maximises, is the value, or
the value minus lambda * cost / B under `choice="value-minus-cost"`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from math import inf

import numpy as np

from search.config import SearchConfig
from search.orders import OrderSpace
from search.result import SearchCoroutine, SearchResult
from search.types import FloatArray, IntArray, Order

BEAM_WIDTH = 3


class Incumbent:
    """The order of largest net value so far, and what was spent on finding it.

    Ties: lower cost, then fewer candidates, then the lexicographically smaller order, that is, the better-ranked
    candidates.

    Its net values are value - cost_weight * cost / budget.

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


Rounds = Generator[list[Order], FloatArray, None]
Policy = Callable[[OrderSpace, SearchConfig, Incumbent], Rounds]


def run_rounds(policy: Policy, costs: IntArray, budget: int, config: SearchConfig) -> SearchCoroutine:
    """Run a policy as far as the config allows."""
    incumbent = Incumbent(costs, budget, config.cost_weight if config.choice == "value-minus-cost" else 0.0)
    space = OrderSpace(costs, budget, config.max_length)
    rounds = policy(space, config, incumbent)
    orders = next(rounds, None)
    while orders:
        if config.max_scored is not None:
            orders = orders[: config.max_scored - incumbent.num_scored]
        net_values = incumbent.update(orders, (yield orders))
        if len(incumbent.orders) == config.iterations or incumbent.num_scored == config.max_scored:
            break
        try:
            orders = rounds.send(net_values)
        except StopIteration:
            break
    return incumbent.result(
        utility=incumbent.value - config.cost_weight * incumbent.cost / budget,
        complete=space.enumerate(incumbent.num_scored) is not None,
    )


def beam(space: OrderSpace, config: SearchConfig, incumbent: Incumbent) -> Rounds:
    """Extend the `BEAM_WIDTH` best orders of each length; of equals, those proposed first."""
    front: list[Order] = [()]
    while orders := [child for order in front for child in space.children(order)]:
        values = yield orders
        front = [orders[row] for row in np.argsort(-values, kind="stable")[:BEAM_WIDTH].tolist()]
