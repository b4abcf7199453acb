"""Types and errors of a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


class SearchError(ValueError):
    """A problem, a setting or a scorer's answer breaks a rule; the message names value, rule and remedy."""
