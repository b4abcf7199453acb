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


@dataclass(frozen=True, slots=True)
class Settings:
    """Distribution of the problems.

    With the defaults a problem has about 940 feasible orders; policy `public-code` finds about 35 of 60 optima in 10
    iterations and 51 in 50.

    Attributes:
        budget: Upper bound on the cost of an order.
        costs: Smallest and largest cost of a candidate, uniform whole numbers.
        relevance: Largest relevance; uniform from 0.
        redundancy: Largest redundancy of a pair; uniform from 0.
        redundant_share: Share of pairs that are redundant at all.
        bonus: Largest bonus of an ordered adjacent pair; uniform from 0.
        bonus_share: Share of ordered pairs that have a bonus at all.
        dilution: Weight of the squared cost, per (100 cost units)^2.
        scale: Factor on every value.
    """

    budget: int = 430
    costs: tuple[int, int] = (50, 150)
    relevance: float = 1.0
    redundancy: float = 1.1
    redundant_share: float = 0.3
    bonus: float = 1.3
    bonus_share: float = 0.17
    dilution: float = 0.12
    scale: float = 0.5


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


def problems(
    seed: int, settings: Settings = Settings(), sizes: Sequence[int] = SIZES, per_size: int = PER_SIZE
) -> list[SyntheticProblem]:
    """Draw `per_size` problems of every size, the same ones for the same seed."""
    rng = np.random.default_rng(seed)
    return [problem(rng, size, settings) for size in sizes for _ in range(per_size)]


def problem(rng: np.random.Generator, size: int, settings: Settings = Settings()) -> SyntheticProblem:
    """Draw one problem with `size` candidates; ranks are uninformative, so that no policy gains from them."""
    pairs = (size, size)
    redundancy = rng.uniform(0, settings.redundancy, pairs) * (rng.random(pairs) < settings.redundant_share)
    redundancy = np.triu(redundancy, 1)
    bonus = rng.uniform(0, settings.bonus, pairs) * (rng.random(pairs) < settings.bonus_share)
    low, high = settings.costs
    return SyntheticProblem(
        costs=rng.integers(low, high, size, endpoint=True),
        budget=settings.budget,
        relevance=settings.scale * rng.uniform(0, settings.relevance, size),
        redundancy=settings.scale * (redundancy + redundancy.T),
        bonus=settings.scale * bonus,
        dilution=settings.scale * settings.dilution,
    )
