"""Orders to begin with, and the neighbours of good ones, as rows padded with C, `[., L]`.

Letters: C candidates, L candidates in the longest feasible order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from search.orders import OrderSpace
from search.types import IntArray, Order

STRIDES = (1, 3)
"""Steps in rank between neighbours in the runs of the opening."""
MAX_STARTS = 64
"""Candidates from which runs start, the best-ranked ones."""
LONG = 8
"""Orders of more candidates are changed at their ends and between neighbours only."""


def opening(space: OrderSpace) -> IntArray:
    """Return the single candidates, then runs of candidates of nearby rank that fill the budget."""
    chunks: list[int] = space.fitting.tolist()
    num_tried = min(len(chunks), 4 * space.max_length)
    cycle = chunks * (2 + max(STRIDES) * num_tried // max(1, len(chunks)))
    runs: list[Order] = [(chunk,) for chunk in chunks]
    for stride in STRIDES:
        for start in range(min(len(chunks), MAX_STARTS)):
            runs.append(space.fill(dict.fromkeys(cycle[start : start + stride * num_tried : stride])))
    return space.rows(runs)


def neighbours(space: OrderSpace, order: Order, chunks: Sequence[int]) -> IntArray:
    """Return the feasible orders one step away, each once.

    A step inserts one of `chunks` or exchanges a candidate for it, removes or moves a candidate, or swaps two.
    """
    pad = len(space.costs)
    within, with_new = _steps(len(order), space.max_length)
    extended = np.array([(*order, chunk, pad) for chunk in (pad, *chunks) if chunk not in order])
    rows = np.concatenate((extended[0, within], extended[1:, with_new].reshape(-1, space.max_length)))
    fits = np.append(space.costs, 0)[rows].sum(1) <= space.budget
    return rows.compress(fits, axis=0)


@lru_cache(maxsize=64)
def _steps(size: int, max_length: int) -> tuple[IntArray, IntArray]:
    """Steps as rows of places in an order of `size` candidates, `size` being the new one and `size + 1` padding.

    Returns:
        Those without and those with a new candidate, `[., max_length]`.
    """
    order, new = tuple(range(size)), size
    places = range(size + 1) if size <= LONG else (0, size)
    within: dict[Order, None] = {}
    for a in range(size if size > 1 else 0):
        rest = (*order[:a], *order[a + 1 :])
        within[rest] = None
        within.update({(*rest[:place], a, *rest[place:]): None for place in places if place < size})
        for b in range(a + 1, size if size <= LONG else min(a + 2, size)):
            within[(*order[:a], b, *order[a + 1 : b], a, *order[b + 1 :])] = None
    within.pop(order, None)
    with_new = [(*order[:place], new, *order[place:]) for place in places] if size < max_length else []
    with_new += [(*order[:place], new, *order[place + 1 :]) for place in order]
    return _padded(within, size + 1, max_length), _padded(with_new, size + 1, max_length)


def _padded(steps: Iterable[Order], pad: int, max_length: int) -> IntArray:
    rows = [(*step, *(pad,) * (max_length - len(step))) for step in steps]
    return np.array(rows, dtype=np.int64).reshape(-1, max_length)
