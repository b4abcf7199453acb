"""Names for what passes through the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

Order = tuple[int, ...]
"""An ordered combination: candidate indices, 0 being the best-ranked candidate."""

ScoreOrders = Callable[[Sequence[Order]], ArrayLike]
"""Orders in, one finite value each out, `[len(orders)]`, higher is better."""

ScoreProblemOrders = Callable[[Sequence[tuple[int, Order]]], ArrayLike]
"""Pairs (problem index, order) in, one finite value each out, `[len(pairs)]`, higher is better."""


class Problem(NamedTuple):
    """What one search is about; a plain `(costs, budget)` tuple does as well.

    Attributes:
        costs: Cost of each candidate, best-ranked candidate first, `[num_candidates]`, whole numbers >= 0.
        budget: The most that an order may cost, in the unit of `costs`, a whole number >= 1.
    """

    costs: ArrayLike
    budget: int
