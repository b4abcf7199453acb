"""Small selection problems that can be solved exactly: relevance, redundancy, adjacency and dilution.

    value(o) = sum_i relevance[i] - sum_{i<j} redundancy[i, j] + sum_p bonus[o_p, o_p+1] - dilution * (cost(o) / 100)^2

Policy `bayesian` assumes values made of just these effects, so its results here are better than on other values.
Letters: C candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from search.types import FloatArray, IntArray, Order

SIZES = (4, 5, 6, 7, 8)
PER_SIZE = 12
MAX_LENGTH = 5

# With this distribution a problem has about 940 feasible orders; policy `public-code` finds about 35 of 60 optima in 10
# iterations and 51 in 50.
BUDGET, LOW_COST, HIGH_COST = 430, 50, 150
"""Upper bound on the cost of an order; costs of candidates are uniform whole numbers."""
RELEVANCE, REDUNDANCY, BONUS = 1.0, 1.1, 1.3
"""Largest values of a candidate, of a pair, and of an ordered adjacent pair; uniform from 0."""
REDUNDANT_SHARE, BONUS_SHARE = 0.3, 0.17
"""Shares of the pairs that are redundant, or have a bonus, at all."""
DILUTION = 0.12
"""Weight of the squared cost, per (100 cost units)^2."""
SCALE = 0.5
"""Factor on every value."""


@dataclass(frozen=True, slots=True)
class SyntheticProblem:
    """One problem and its scorer; arrays `[C]` or `[C, C]`, `redundancy` symmetric with a zero diagonal."""

    costs: IntArray
    budget: int
    relevance: FloatArray
    redundancy: FloatArray
    bonus: FloatArray
    dilution: float
    max_length: int = MAX_LENGTH

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Score orders, `[len(orders)]`."""
        return np.array([self._score(order) for order in orders])

    def _score(self, order: Order) -> float:
        chunks = list(order)
        redundancy = self.redundancy[np.ix_(chunks, chunks)].sum() / 2
        bonus = self.bonus[chunks[:-1], chunks[1:]].sum()
        dilution = self.dilution * (self.costs[chunks].sum() / 100) ** 2
        return float(self.relevance[chunks].sum() - redundancy + bonus - dilution)


def problems(seed: int, sizes: Sequence[int] = SIZES, per_size: int = PER_SIZE) -> list[SyntheticProblem]:
    """Draw `per_size` problems of every size, the same ones for the same seed."""
    rng = np.random.default_rng(seed)
    return [_problem(rng, size) for size in sizes for _ in range(per_size)]


def _problem(rng: np.random.Generator, size: int) -> SyntheticProblem:
    # Ranks are uninformative, so that no policy gains from them.
    pairs = (size, size)
    redundancy = np.triu(rng.uniform(0, REDUNDANCY, pairs) * (rng.random(pairs) < REDUNDANT_SHARE), 1)
    bonus = rng.uniform(0, BONUS, pairs) * (rng.random(pairs) < BONUS_SHARE)
    return SyntheticProblem(
        costs=rng.integers(LOW_COST, HIGH_COST, size, endpoint=True),
        budget=BUDGET,
        relevance=SCALE * rng.uniform(0, RELEVANCE, size),
        redundancy=SCALE * (redundancy + redundancy.T),
        bonus=SCALE * bonus,
        dilution=SCALE * DILUTION,
    )
