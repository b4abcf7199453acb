"""Types and errors of a search."""

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
    """Costs and budget of one search, see `search.search`; a plain tuple works as well."""

    costs: ArrayLike
    budget: int


class SearchError(ValueError):
    """A problem, a setting or a scorer's answer breaks a rule; the message names value, rule and remedy."""


class StopSearch(Exception):  # noqa: N818  (a signal to the coroutine, not an error)
    """Thrown into a search that waits for values: it ends and returns what it has found, with `error` in the result."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error
