"""Feasible orders: counted, listed, extended and filled up.

Letters: P orders, C candidates, L candidates in the longest feasible order. Orders as rows of an array, `[P, L]`,
are padded with C.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from math import factorial

import numpy as np
from numpy.typing import ArrayLike

from search.types import IntArray, Order
from search.validation import check_at_least, checked_problem


class OrderSpace:
    """The feasible orders of a problem.

    Attributes:
        fitting: Candidates that fit the budget, best-ranked first.
        max_length: L; at least 1.
    """

    def __init__(self, costs: IntArray, budget: int, max_length: int | None = None) -> None:
        self.costs, self.budget = costs, budget
        self.fitting = np.flatnonzero(costs <= budget)
        self._costs: list[int] = costs.tolist()
        self._cheapest = min(self._costs, default=0)
        self._by_cost = np.argsort(costs, kind="stable").tolist()
        most = most_that_fit(costs, budget)
        self.max_length = max(1, most if max_length is None else min(most, max_length))

    def children(self, order: Order) -> list[Order]:
        """Return the feasible extensions of an order by one candidate: cheapest first, then better-ranked."""
        if len(order) == self.max_length:
            return []
        left = self.budget - sum(self._costs[chunk] for chunk in order)
        return [(*order, chunk) for chunk in self._by_cost if self._costs[chunk] <= left and chunk not in order]

    def fill(self, ranking: Iterable[int], max_length: int | None = None) -> Order:
        """Return the order that takes each candidate of a ranking that still fits."""
        longest = self.max_length if max_length is None else max_length
        order: list[int] = []
        left, costs = self.budget, self._costs
        for chunk in ranking:
            if costs[chunk] <= left:
                order.append(chunk)
                left -= costs[chunk]
                if len(order) == longest or left < self._cheapest:
                    break
        return tuple(order)

    def enumerate(self, limit: int) -> IntArray | None:
        """Return all orders, `[P, L]`: cheapest first, then shorter, then better-ranked; None for more than `limit`."""
        level, spent = self.fitting[:, None], self.costs[self.fitting]
        levels, costs = [level], [spent]
        total = len(level)
        if total > limit:
            return None
        while len(levels) < self.max_length:
            fits = spent[:, None] + self.costs <= self.budget
            np.put_along_axis(fits, level, False, axis=1)
            total += int(fits.sum())
            if total > limit:
                return None
            parent, chunk = np.nonzero(fits)
            level = np.concatenate((level[parent], chunk[:, None]), axis=1)
            spent = spent[parent] + self.costs[chunk]
            levels.append(level)
            costs.append(spent)
        padded = [
            np.pad(level, ((0, 0), (0, self.max_length - level.shape[1])), constant_values=len(self.costs))
            for level in levels
        ]
        return np.concatenate(padded)[np.argsort(np.concatenate(costs), kind="stable")]

    def rows(self, orders: Iterable[Order]) -> IntArray:
        """Return orders as rows, each of them once, `[P, L]`."""
        pad = (len(self.costs),) * self.max_length
        padded = [(order + pad)[: self.max_length] for order in dict.fromkeys(orders)]
        return np.array(padded, dtype=np.int64).reshape(-1, self.max_length)


def most_that_fit(costs: IntArray, budget: int) -> int:
    """Return the length of the longest feasible order."""
    # Python's integers: sums of costs may exceed int64.
    return sum(total <= budget for total in accumulate(np.sort(costs).tolist()))


def count_orders(
    costs: ArrayLike, budget: int, max_length: int, *, ordered: bool = True, limit: int | None = None
) -> int:
    """Count the feasible orders of 1 to `max_length` candidates, without enumerating them.

    Args:
        costs: Cost of each candidate, `[num_candidates]`, whole numbers >= 0.
        budget: Upper bound on the cost of an order, a whole number >= 1.
        max_length: Most candidates in an order.
        ordered: False counts sets.
        limit: Stop at more than this and return `limit + 1`; None counts to the end.
    """
    check_at_least("max_length", max_length, 1)
    costs, budget = checked_problem(costs, budget)
    max_length = min(max_length, most_that_fit(costs, budget))
    # sets[k][t]: how many sets of k of the candidates seen so far cost t together.
    sets: list[Counter[int]] = [Counter({0: 1}), *(Counter() for _ in range(max_length))]
    num_orders = 0
    for cost in np.sort(costs).tolist():
        # Longest first, so that no set takes the candidate twice.
        for length in range(max_length, 0, -1):
            num_new = 0
            for total, num_sets in sets[length - 1].items():
                if total + cost <= budget:
                    sets[length][total + cost] += num_sets
                    num_new += num_sets
            num_orders += num_new * factorial(length) if ordered and num_new else num_new
        if limit is not None and num_orders > limit:
            return limit + 1
    return num_orders
