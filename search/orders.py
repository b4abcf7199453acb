"""Feasible orders: listed and filled up.

Letters: P orders, C candidates, L candidates in the longest feasible order. Orders as rows of an array, `[P, L]`,
are padded with C.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import numpy as np

from search.types import IntArray, Order


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
        # Python's integers: sums of costs may exceed int64.
        most = sum(total <= budget for total in accumulate(sorted(self._costs)))
        self.max_length = max(1, most if max_length is None else min(most, max_length))

    def fill(self, ranking: Iterable[int]) -> Order:
        """Return the order that takes each candidate of a ranking that still fits."""
        order: list[int] = []
        left, costs = self.budget, self._costs
        for chunk in ranking:
            if costs[chunk] <= left:
                order.append(chunk)
                left -= costs[chunk]
                if len(order) == self.max_length or left < self._cheapest:
                    break
        return tuple(order)

    def enumerate(self, limit: int, *, ordered: bool = True) -> IntArray | None:
        """Return all orders, `[P, L]`: cheapest first, then shorter, then better-ranked; None for more than `limit`.

        With `ordered=False`, only those whose candidates ascend: one for each set.
        """
        level, spent = self.fitting[:, None], self.costs[self.fitting]
        levels, costs = [level], [spent]
        total = len(level)
        while total <= limit and len(levels) < self.max_length:
            fits = spent[:, None] + self.costs <= self.budget
            if ordered:
                np.put_along_axis(fits, level, False, axis=1)
            else:
                fits &= np.arange(len(self.costs)) > level[:, -1:]
            total += int(fits.sum())
            if total > limit:
                break
            parent, chunk = np.nonzero(fits)
            level = np.concatenate((level[parent], chunk[:, None]), axis=1)
            spent = spent[parent] + self.costs[chunk]
            levels.append(level)
            costs.append(spent)
        if total > limit:
            return None
        padded = [
            np.pad(level, ((0, 0), (0, self.max_length - level.shape[1])), constant_values=len(self.costs))
            for level in levels
        ]
        return np.concatenate(padded)[np.argsort(np.concatenate(costs), kind="stable")]

    def order(self, row: IntArray) -> Order:
        """Return the order of a row, `[L]`."""
        return tuple(chunk for chunk in row.tolist() if chunk < len(self.costs))

    def rows(self, orders: Iterable[Order]) -> IntArray:
        """Return orders as rows, each of them once, `[P, L]`."""
        pad = (len(self.costs),) * self.max_length
        padded = [(order + pad)[: self.max_length] for order in dict.fromkeys(orders)]
        return np.array(padded, dtype=np.int64).reshape(-1, self.max_length)
