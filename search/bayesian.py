"""Policy `bayesian`: score the orders of largest expected improvement under a Gaussian process.

Source: Jones, Schonlau and Welch, "Efficient Global Optimization of Expensive Black-Box Functions", 1998. Letters: C
candidates, L candidates in the longest feasible order; orders as rows of an array are padded with C, `[., L]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import inf, isqrt

import numpy as np

from search.gaussian_process import GaussianProcess, OrderPool, first_largest, largest
from search.orders import OrderSpace
from search.types import FloatArray, IntArray, Order, SearchConfig, SearchCoroutine, SearchResult

BATCH_SIZE = 8
"""Orders a round: in smaller batches the process trusts the first explanation that fits too soon (45 of 60 optima found
one by one, 59 eight by eight)."""
LEAST_GAIN = 1e-8
"""The search ends when no expected improvement exceeds this share of the amplitude of the values."""
MAX_CANDIDATES = 1000
"""At most this many candidates that fit the budget are considered: the pool holds each one's single order."""
MAX_PLACES = 2**17
"""Candidates times those of the longest order, up to which a round takes less than half a second: of more that fit
together, fewer are considered, the best-ranked ones."""
MAX_ENUMERATED = 2000
"""Up to this many feasible orders, the pool holds all of them from the start."""
NUM_SEEDS = 2
"""Orders whose neighbours join a larger problem's pool each round."""
MAX_OPEN = 300
"""Orders not yet scored, those of largest expected improvement, that stay in a larger problem's pool each round."""
NUM_CHUNKS = 12
"""Candidates that are tried in each place of the seeds."""
NUM_FILLS = 4
"""Orders filled up in the ranking of the candidates, each without one head more."""
STRIDES = (1, 3)
"""Steps in rank between neighbours in the runs of the opening."""
MAX_STARTS = 64
"""Candidates from which runs start, the best-ranked ones."""
LONG = 8
"""Orders of more candidates are changed at their ends and between neighbours only."""


def bayesian_search(costs: IntArray, budget: int, config: SearchConfig) -> SearchCoroutine:
    """Ask for `BATCH_SIZE` orders a round, until no expected improvement is large enough.

    It maximises the value, or under `choice="value-minus-cost"` the value minus lambda * cost / B. Ties: lower cost,
    then fewer candidates, then the better-ranked candidates.
    """
    space = OrderSpace(costs, budget, config.max_length)
    most = max(isqrt(MAX_PLACES), MAX_PLACES // max(1, space.max_length))
    names = space.fitting[: min(MAX_CANDIDATES, most)]
    price = config.cost_weight if config.choice == "value-minus-cost" else 0.0
    # Minus the net value, cost, length and order of the best one so far, in this order, so that the smallest is best.
    best: tuple[float, int, int, Order] = (inf, 0, 0, ())
    value, num_scored = 0.0, 0
    incumbents: list[Order] = []
    optimizer = _Optimizer(OrderSpace(costs[names], budget, config.max_length)) if len(names) else None
    while optimizer is not None and (rows := optimizer.batch()):
        left = None if config.max_scored is None else config.max_scored - num_scored
        orders = [tuple(names[list(optimizer.order(row))].tolist()) for row in rows[:left]]
        values = yield orders
        spent = np.array([costs[list(order)].sum() for order in orders])
        net = values - price * (spent / budget) if price else values
        for row in np.flatnonzero(net == net.max()).tolist():
            rank = (-float(net[row]), int(spent[row]), len(orders[row]), orders[row])
            if rank < best:
                best, value = rank, float(values[row])
        num_scored += len(orders)
        incumbents.append(best[-1])
        if len(incumbents) == config.iterations or num_scored == config.max_scored:
            break
        optimizer.observe(net, tuple(names.searchsorted(best[-1]).tolist()), -best[0])
    return SearchResult(
        order=best[-1],
        value=value,
        utility=value - config.cost_weight * best[1] / budget,
        cost=best[1],
        num_scored=num_scored,
        num_calls=len(incumbents),
        incumbents=tuple(incumbents),
        complete=space.count(num_scored) is not None,
    )


class _Optimizer:
    """The pool of orders, the process, and how they grow."""

    def __init__(self, space: OrderSpace) -> None:
        self._space = space
        self._pool = OrderPool(space.costs, space.budget, space.max_length)
        self._process = GaussianProcess(self._pool)
        self._expanded: set[Order] = set()
        self._gains = np.empty(0)
        self._best_value = 0.0
        rows = space.enumerate(MAX_ENUMERATED)
        self._enumerated = rows is not None
        self._process.extend(self._pool.add(opening(space) if rows is None else rows))

    def order(self, row: int) -> Order:
        """Return the order at a row of the pool."""
        return self._pool.order(row)

    def batch(self) -> list[int]:
        """Return the rows to score next; none when what is left is not worth scoring."""
        process = self._process
        rows: list[int] = []
        if not process.flat:
            known = self._gains[: 0 if self._enumerated else None]
            gains = process.expected_improvement(self._best_value, slice(len(known), None))
            rows = process.batch(np.append(known, gains), BATCH_SIZE, process.least_gain(LEAST_GAIN))
            if rows:
                process.condition(rows)
            return rows
        seen = set(self._pool.rows[process.rows].ravel().tolist())
        if process.rows and seen.issuperset(range(len(self._space.costs))):
            return []
        # The rows of largest variance, each given the ones before it.
        while len(rows) < BATCH_SIZE and process.open.any():
            rows.append(first_largest(np.where(process.open, process.prior_deviation(), -np.inf)))
            process.condition(rows[-1:])
        return rows

    def observe(self, values: FloatArray, best: Order, best_value: float) -> None:
        """Update the process with the values of the last batch, and the pool with what they make promising."""
        self._best_value = best_value
        self._process.observe(values)
        if not self._enumerated and not self._process.flat:
            self._widen(best)

    def _widen(self, best: Order) -> None:
        """Add orders made of the most promising candidates, and neighbours of the most promising orders."""
        space, process = self._space, self._process
        bounds = process.upper_confidence_bound(slice(len(space.costs)))  # the single candidates open the pool
        densities = (bounds - bounds.min()) / np.maximum(space.costs, 1)
        rankings = [largest(scores, len(scores)).tolist() for scores in (bounds, densities)]
        fills = [space.fill(ranking[start:]) for ranking in rankings for start in range(NUM_FILLS)]
        gains = np.where(process.open, process.expected_improvement(self._best_value), -np.inf)
        ranking = largest(gains, MAX_OPEN)
        promising = map(self._pool.order, ranking[: 4 * NUM_SEEDS].tolist())
        seeds = [seed for seed in (best, *promising) if seed not in self._expanded][:NUM_SEEDS]
        self._expanded.update(seeds)
        kept = np.unique(np.concatenate((np.arange(len(space.costs)), process.rows, ranking)))
        process.keep(kept)
        self._gains = gains[kept]
        around = [neighbours(space, seed, rankings[0][:NUM_CHUNKS]) for seed in seeds]
        process.extend(self._pool.add(np.concatenate([space.rows(fill for fill in fills if fill), *around])))


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
