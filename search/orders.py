"""Feasible orders: listed and filled up.

Letters: P orders, C candidates, L candidates in the longest feasible order. Orders as rows of an array, `[P, L]`,
are padded with C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from search.types import IntArray, Order

CELLS = 2**15
"""Orders times candidates that are compared at once."""


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

    def count(self, most: int, *, ordered: bool = True, check: Callable[[], object] = lambda: None) -> int | None:
        """Return the number of orders, or None for more than `most`; see `blocks`."""
        total = len(self.fitting)
        for level, spent in self._levels(self.max_length - 1, ordered):
            check()
            total += int(self._fits(level, spent, ordered).sum())
            if total > most:
                break
        return None if total > most else total

    def blocks(self, size: int, *, ordered: bool = True) -> Iterator[IntArray]:
        """Yield all orders, `size` at a time, `[P, L]`, in memory that does not grow with their number.

        With `ordered=False`, only those whose candidates ascend: one for each set.
        """
        parts: list[IntArray] = []
        waiting = 0
        for level, _ in self._levels(self.max_length, ordered):
            missing = ((0, 0), (0, self.max_length - level.shape[1]))
            parts.append(np.pad(level, missing, constant_values=len(self.costs)))
            waiting += len(level)
            if waiting >= size:
                rows = np.concatenate(parts)
                whole = waiting - waiting % size
                yield from np.split(rows[:whole], whole // size)
                parts, waiting = [rows[whole:].copy()], waiting - whole
        if waiting:
            yield np.concatenate(parts)

    def enumerate(self, limit: int) -> IntArray | None:
        """Return all orders, `[P, L]`: cheapest first, then shorter, then better-ranked; None for more than `limit`."""
        if self.count(limit) is None:
            return None
        rows = np.concatenate([np.zeros((0, self.max_length), dtype=np.int64), *self.blocks(max(1, limit))])
        costs, lengths = self.of_rows(rows)
        return rows[np.lexsort((*rows.T[::-1], lengths, costs))]

    def of_rows(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the cost and the number of candidates of each row, `[P]`."""
        return np.append(self.costs, 0)[rows].sum(axis=1), (rows < len(self.costs)).sum(axis=1)

    def _levels(self, max_length: int, ordered: bool) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield all orders of up to `max_length` candidates as orders of one length, `[p, l]`, and their costs, `[p]`.

        Depth first: of each length only the orders that continue a few shorter ones are in memory.
        """
        most = max(1, CELLS // max(1, len(self.costs)))
        stack = [(self.fitting[:, None], self.costs[self.fitting])] if max_length and len(self.fitting) else []
        while stack:
            level, spent = stack.pop()
            if len(level) > most:
                stack.append((level[most:], spent[most:]))
                level, spent = level[:most], spent[:most]
            yield level, spent
            if level.shape[1] < max_length:
                parent, chunk = np.nonzero(self._fits(level, spent, ordered))
                if len(parent):
                    longer = np.concatenate((level[parent], chunk[:, None]), axis=1)
                    stack.append((longer, spent[parent] + self.costs[chunk]))

    def _fits(self, level: IntArray, spent: IntArray, ordered: bool) -> NDArray[np.bool_]:
        """Return which candidates may follow each order, `[p, C]`."""
        fits = spent[:, None] + self.costs <= self.budget
        if ordered:
            np.put_along_axis(fits, level, False, axis=1)
        else:
            fits &= np.arange(len(self.costs)) > level[:, -1:]
        return fits

    def order(self, row: IntArray) -> Order:
        """Return the order of a row, `[L]`."""
        return tuple(chunk for chunk in row.tolist() if chunk < len(self.costs))

    def rows(self, orders: Iterable[Order]) -> IntArray:
        """Return orders as rows, each of them once, `[P, L]`."""
        pad = (len(self.costs),) * self.max_length
        padded = [(order + pad)[: self.max_length] for order in dict.fromkeys(orders)]
        return np.array(padded, dtype=np.int64).reshape(-1, self.max_length)
