"""Feasible orders: all of them where they are few, otherwise an opening, and the neighbours of good ones.

Letters: P orders, L candidates in the longest feasible one, C candidates. Where orders are rows of an
array, `[P, L]`, they are padded with C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from search.types import IntArray, Order

STRIDES = (1, 2, 3, 5, 7)
"""Steps in rank between neighbours in the runs of the opening."""
MAX_STARTS = 64
"""Candidates from which runs start, the best-ranked ones."""
LONG = 8
"""Orders of more candidates are changed at their ends and between neighbours only."""


def most_that_fit(costs: IntArray, budget: int) -> int:
    """Return how many candidates the longest feasible order has."""
    # Python's integers: sums of costs may pass the largest int64.
    return sum(total <= budget for total in accumulate(np.sort(costs).tolist()))


def children_of(costs: IntArray, budget: int, max_length: int | None) -> Callable[[Order], list[Order]]:
    """Return the function that lists an order's feasible children: cheapest first, then better-ranked."""
    cost: list[int] = costs.tolist()
    by_cost = sorted(range(len(cost)), key=cost.__getitem__)
    longest = len(cost) if max_length is None else max_length

    def children(order: Order) -> list[Order]:
        if len(order) >= longest:
            return []
        left = budget - sum(cost[chunk] for chunk in order)
        return [(*order, chunk) for chunk in by_cost if cost[chunk] <= left and chunk not in order]

    return children


class Space:
    """The feasible orders of a problem.

    Args:
        costs: Cost of each candidate, `[C]`.
        budget: The most that an order may cost.
        max_length: Most candidates in an order, or None.

    Attributes:
        fitting: Candidates that fit the budget, best-ranked first.
        max_length: L; at least 1.
    """

    def __init__(self, costs: IntArray, budget: int, max_length: int | None) -> None:
        self.costs, self.budget = costs, budget
        self.fitting = np.flatnonzero(costs <= budget)
        self._costs: list[int] = costs.tolist()
        most = most_that_fit(costs, budget)
        self.max_length = max(1, most if max_length is None else min(most, max_length))

    def all_orders(self, limit: int) -> IntArray | None:
        """Return every feasible order, cheapest first, then shorter, then better-ranked; None for over `limit`."""
        level, spent = self.fitting[:, None], self.costs[self.fitting]
        levels, costs = [level], [spent]
        total = len(level)
        while total <= limit and len(levels) < self.max_length:
            fits = spent[:, None] + self.costs <= self.budget
            np.put_along_axis(fits, level, False, axis=1)
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
        rows = np.full((total, self.max_length), len(self.costs), dtype=np.int64)
        start = 0
        for level in levels:
            rows[start : start + len(level), : level.shape[1]] = level
            start += len(level)
        return rows[np.argsort(np.concatenate(costs), kind="stable")]

    def opening(self) -> IntArray:
        """Return the single candidates, then runs of candidates of nearby rank that fill the budget."""
        chunks: list[int] = self.fitting.tolist()
        runs: list[Order] = [(chunk,) for chunk in chunks]
        for stride in STRIDES:
            for start in range(min(len(chunks), MAX_STARTS)):
                places = range(start, start + stride * min(len(chunks), 4 * self.max_length), stride)
                runs.append(self.filled(dict.fromkeys(chunks[place % len(chunks)] for place in places)))
        return self.rows(runs)

    def filled(self, ranking: Iterable[int], max_length: int | None = None) -> Order:
        """Return the order that takes each candidate of a ranking that still fits."""
        longest = self.max_length if max_length is None else max_length
        order: list[int] = []
        left = self.budget
        for chunk in ranking:
            if self._costs[chunk] <= left:
                order.append(chunk)
                left -= self._costs[chunk]
                if len(order) == longest:
                    break
        return tuple(order)

    def neighbours(self, order: Order, chunks: Sequence[int]) -> Iterator[Order]:
        """Feasible orders one step away: one of `chunks` put in or exchanged, one taken out or moved, two swapped."""
        size, left = len(order), self.budget - sum(self._costs[chunk] for chunk in order)
        places = range(size + 1) if size <= LONG else (0, size)
        for a in range(size if size > 1 else 0):
            rest = (*order[:a], *order[a + 1 :])
            yield rest
            for place in places:
                if place < size:
                    yield (*rest[:place], order[a], *rest[place:])
            for b in range(a + 1, size if size <= LONG else min(a + 2, size)):
                yield (*order[:a], order[b], *order[a + 1 : b], order[a], *order[b + 1 :])
        for chunk in chunks:
            if chunk in order:
                continue
            cost = self._costs[chunk]
            if size < self.max_length and cost <= left:
                for place in places:
                    yield (*order[:place], chunk, *order[place:])
            for place, other in enumerate(order):
                if cost <= left + self._costs[other]:
                    yield (*order[:place], chunk, *order[place + 1 :])

    def rows(self, orders: Iterable[Order]) -> IntArray:
        """Return orders as rows, each of them once, `[P, L]`."""
        unique = list(dict.fromkeys(orders))
        rows = np.full((len(unique), self.max_length), len(self.costs), dtype=np.int64)
        for row, order in zip(rows, unique, strict=True):
            row[: len(order)] = order
        return rows
