"""Baseline policies: greedy, beam, best-first and random search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from search.config import SearchConfig
from search.orders import OrderSpace
from search.rounds import Incumbent, Rounds
from search.surrogate import Surrogate
from search.types import Order


def greedy(space: OrderSpace, config: SearchConfig, incumbent: Incumbent, surrogate: Surrogate | None) -> Rounds:
    """Extend the best order by every candidate while that improves it."""
    children = _children(space, surrogate)
    current: Order | None = None
    while incumbent.order != current:
        current = incumbent.order
        if not (orders := children(current)):
            return
        yield orders


def beam(space: OrderSpace, config: SearchConfig, incumbent: Incumbent, surrogate: Surrogate | None) -> Rounds:
    """Extend the `beam_width` best orders of each length; of equals, those proposed first."""
    children = _children(space, surrogate)
    front: list[Order] = [()]
    while orders := [child for order in front for child in children(order)]:
        values = yield orders
        front = [orders[place] for place in np.argsort(-values, kind="stable")[: config.beam_width].tolist()]


def best_first(space: OrderSpace, config: SearchConfig, incumbent: Incumbent, surrogate: Surrogate | None) -> Rounds:
    """Extend the order of largest value plus a bound on what the remaining budget can add.

    The bound is that of the fractional knapsack (Dantzig, 1957) over the unused candidates, whose gain is the largest
    that appending them has brought so far. The empty order has value 0.
    """
    children = _children(space, surrogate)
    costs = space.costs
    bound = _bounding(costs.tolist(), space.budget, len(costs) if config.max_length is None else config.max_length)
    gains = np.zeros(len(costs))
    value_of: dict[Order, float] = {(): 0.0}
    while value_of:
        fruitful = np.flatnonzero(gains > 0)
        density = gains[fruitful] / np.maximum(costs[fruitful], 1)
        ranked = [(int(c), float(gains[c])) for c in fruitful[np.argsort(-density, kind="stable")]]
        for order in sorted(value_of, key=lambda order: value_of[order] + bound(order, ranked), reverse=True):
            value = value_of.pop(order)
            if orders := children(order):
                values = yield orders
                value_of.update(zip(orders, values.tolist(), strict=True))
                last = [child[-1] for child in orders]
                gains[last] = np.maximum(gains[last], values - value)
                break


def at_random(space: OrderSpace, config: SearchConfig, incumbent: Incumbent, surrogate: Surrogate | None) -> Rounds:
    """Propose `batch_size` orders a round, each of random candidates up to a random length.

    A round ends after 20 draws per order, the search with an empty round: then hardly any order is left.
    """
    rng = np.random.default_rng(config.seed)
    seen: set[Order] = set()
    while orders := _draws(rng, space, config.batch_size, seen):
        yield orders


def _children(space: OrderSpace, surrogate: Surrogate | None) -> Callable[[Order], list[Order]]:
    if surrogate is None:
        return space.children

    def promising_children(order: Order) -> list[Order]:
        orders = space.children(order)
        return [orders[place] for place in surrogate.promising(orders).tolist()]

    return promising_children


def _draws(rng: np.random.Generator, space: OrderSpace, num_orders: int, seen: set[Order]) -> list[Order]:
    orders: list[Order] = []
    for _ in range(20 * num_orders if len(space.fitting) else 0):
        length = int(rng.integers(1, space.max_length + 1))
        order = space.fill(rng.permutation(space.fitting).tolist(), length)
        if order not in seen:
            seen.add(order)
            orders.append(order)
            if len(orders) == num_orders:
                break
    return orders


def _bounding(costs: list[int], budget: int, max_length: int) -> Callable[[Order, list[tuple[int, float]]], float]:
    def bound(order: Order, ranked: list[tuple[int, float]]) -> float:
        left, room, total = budget - sum(costs[c] for c in order), max_length - len(order), 0.0
        for chunk, gain in ranked:
            if not room:
                break
            if chunk in order:
                continue
            if costs[chunk] > left:
                return total + gain * left / costs[chunk]
            total += gain
            left -= costs[chunk]
            room -= 1
        return total

    return bound
