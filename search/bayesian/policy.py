"""Policy `bayesian`: score the orders of largest expected improvement under a Gaussian process.

Source: Jones, Schonlau and Welch, "Efficient Global Optimization of Expensive Black-Box Functions", 1998.
"""

from __future__ import annotations

import numpy as np

from search.bayesian.gaussian_process import GaussianProcess, first_largest, largest
from search.bayesian.kernel import OrderPool
from search.bayesian.neighbours import neighbours, opening
from search.config import SearchConfig
from search.incumbent import Incumbent
from search.orders import OrderSpace
from search.result import SearchCoroutine
from search.types import FloatArray, IntArray, Order

BATCH_SIZE = 8
"""Orders a round: in smaller batches the process trusts the first explanation that fits too soon (45 of 60 optima found
one by one, 59 eight by eight)."""
LEAST_GAIN = 1e-8
"""The search ends when no expected improvement exceeds this share of the amplitude of the values."""
MAX_CANDIDATES = 1000
"""Of the candidates that fit the budget only so many are considered: the pool holds each one's single order."""
MAX_ENUMERATED = 2000
"""Up to so many feasible orders all are in the pool from the start."""
NUM_SEEDS = 2
"""Orders whose neighbours join a larger problem's pool each round."""
MAX_OPEN = 300
"""Orders not yet scored, those of largest expected improvement, that stay in a larger problem's pool each round."""
NUM_CHUNKS = 12
"""Candidates that are tried in each place of the seeds."""
NUM_FILLS = 4
"""Orders filled up in the ranking of the candidates, each without one head more."""


def bayesian_search(costs: IntArray, budget: int, config: SearchConfig) -> SearchCoroutine:
    """Ask for `BATCH_SIZE` orders a round, until no expected improvement is large enough.

    It maximises the value, or under `choice="value-minus-cost"` the value minus lambda * cost / B.
    """
    incumbent = Incumbent(costs, budget, config.cost_weight if config.choice == "value-minus-cost" else 0.0)
    space = OrderSpace(costs, budget, config.max_length)
    names = space.fitting[:MAX_CANDIDATES]
    if len(names):
        optimizer = _Optimizer(names, OrderSpace(costs[names], budget, config.max_length), incumbent)
        while rows := optimizer.batch():
            left = None if config.max_scored is None else config.max_scored - incumbent.num_scored
            orders = [optimizer.order(row) for row in rows[:left]]
            net_values = incumbent.update(orders, (yield orders))
            if len(incumbent.orders) == config.iterations or incumbent.num_scored == config.max_scored:
                break
            optimizer.observe(net_values)
    return incumbent.result(
        utility=incumbent.value - config.cost_weight * incumbent.cost / budget,
        complete=space.enumerate(incumbent.num_scored) is not None,
    )


class _Optimizer:
    """The pool, the process and how they grow; `names` holds the problem's candidates that are in `space`, `[C]`."""

    def __init__(self, names: IntArray, space: OrderSpace, incumbent: Incumbent) -> None:
        self._names, self._space, self._incumbent = names, space, incumbent
        self._pool = OrderPool(space.costs, space.budget, space.max_length)
        self._process = GaussianProcess(self._pool)
        self._expanded: set[Order] = set()
        self._gains = np.empty(0)
        rows = space.enumerate(MAX_ENUMERATED)
        self._enumerated = rows is not None
        self._add(opening(space) if rows is None else rows)

    def order(self, row: int) -> Order:
        """Return the order at a row of the pool, in the problem's candidates."""
        return tuple(self._names[list(self._pool.order(row))].tolist())

    def batch(self) -> list[int]:
        """Return the rows to score next; none when what is left is not worth scoring."""
        process = self._process
        if not process.flat:
            best = self._incumbent.net_value
            known = self._gains[: 0 if self._enumerated else None]
            gains = np.append(known, process.expected_improvement(best, slice(len(known), None)))
            rows = process.batch(gains, BATCH_SIZE, process.least_gain(LEAST_GAIN))
            if rows:
                process.condition(rows)
            return rows
        seen = set(self._pool.rows[process.rows].ravel().tolist())
        if self._incumbent.num_scored and seen.issuperset(range(len(self._names))):
            return []
        return self._uninformed_batch()

    def observe(self, values: FloatArray) -> None:
        """Update the process with the values of the last batch, and the pool with what they make promising."""
        self._process.observe(values)
        if not self._enumerated and not self._process.flat:
            self._widen()

    def _uninformed_batch(self) -> list[int]:
        """Return the rows of largest variance, each given the ones before it."""
        process = self._process
        rows: list[int] = []
        while len(rows) < BATCH_SIZE and process.open.any():
            rows.append(first_largest(np.where(process.open, process.prior_deviation(), -np.inf)))
            process.condition(rows[-1:])
        return rows

    def _add(self, rows: IntArray) -> None:
        self._process.extend(self._pool.add(rows))

    def _widen(self) -> None:
        """Add orders made of the most promising candidates, and neighbours of the most promising orders."""
        space, process = self._space, self._process
        bounds = process.upper_confidence_bound(slice(len(space.costs)))  # the single candidates open the pool
        densities = (bounds - bounds.min()) / np.maximum(space.costs, 1)
        rankings = [largest(scores, len(scores)).tolist() for scores in (bounds, densities)]
        fills = [space.fill(ranking[start:]) for ranking in rankings for start in range(NUM_FILLS)]
        best = tuple(self._names.searchsorted(self._incumbent.order).tolist())
        gains = np.where(process.open, process.expected_improvement(self._incumbent.net_value), -np.inf)
        ranking = largest(gains, MAX_OPEN)
        promising = map(self._pool.order, ranking[: 4 * NUM_SEEDS].tolist())
        seeds = [seed for seed in (best, *promising) if seed not in self._expanded][:NUM_SEEDS]
        self._expanded.update(seeds)
        kept = np.unique(np.concatenate((np.arange(len(space.costs)), process.rows, ranking)))
        process.keep(kept)
        self._gains = gains[kept]
        around = [neighbours(space, seed, rankings[0][:NUM_CHUNKS]) for seed in seeds]
        self._add(np.concatenate([space.rows(fill for fill in fills if fill), *around]))
