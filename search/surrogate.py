"""A surrogate: a cheap scorer that decides which orders the scorer sees.

Its values may be on any scale: only their ranking counts, and for policy `bayesian` their spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from search.config import SearchConfig
from search.types import FloatArray, IntArray, Order, ScoreOrders, StopSearch
from search.validation import checked_values

MIN_CHILDREN = 2
"""Children of an expansion that always go to the scorer: a single one could not be compared with anything."""


class Surrogate:
    """A checked surrogate that counts the orders that it scores, `num_ranked`."""

    def __init__(self, score_orders: ScoreOrders, config: SearchConfig) -> None:
        self._score_orders, self._config = score_orders, config
        self.num_ranked = 0

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return the surrogate's values, `[len(orders)]`.

        Raises:
            SearchError: If they break a rule under `on_error="raise"`; errors of the surrogate itself pass through.
            StopSearch: In both cases under `on_error="keep"`.
        """
        try:
            values = checked_values(self._score_orders(orders), orders, "surrogate")
        except Exception as error:
            if self._config.on_error == "raise":
                raise
            raise StopSearch(error) from error
        self.num_ranked += len(orders)
        return values

    def promising(self, orders: Sequence[Order]) -> IntArray:
        """Return the places of the share `prefilter` of orders with the best values, ascending.

        Ties: the order that comes first.
        """
        num_kept = max(MIN_CHILDREN, ceil(self._config.prefilter * len(orders)))
        if num_kept >= len(orders):
            return np.arange(len(orders))
        return np.sort(np.argsort(-self(orders), kind="stable")[:num_kept])
