"""Every feasible order, scored: the oracle for small problems."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from common.checks import check_count
from common.errors import InputError
from search.orders import OrderSpace
from search.types import Order, ScoreOrders, SearchResult, checked_problem, checked_values

BATCH_SIZE = 4096
"""Most orders in one call of the scorer."""


def exhaustive(
    costs: ArrayLike,
    score_orders: ScoreOrders,
    budget: int,
    max_length: int = 5,
    *,
    max_orders: int = 200_000,
    ordered: bool = True,
    check: Callable[[], object] = lambda: None,
) -> SearchResult:
    """Score every feasible order and return the one of highest value.

    Ties go to the lower cost, then to fewer candidates, then to the better-ranked candidates.

    Args:
        costs: Cost of each candidate, best-ranked first, `[num_candidates]`, whole numbers >= 0.
        score_orders: Gives one finite value per order, higher is better.
        budget: Upper bound on the cost of an order, a whole number >= 1.
        max_length: Most candidates in an order.
        max_orders: Most orders that may be scored; counted before anything is.
        ordered: False scores one ascending order per set, for scorers to which order does not matter.
        check: Called while orders are counted, and before each batch; what it raises stops the work.

    Raises:
        InputError: An argument or the scorer's answer breaks a rule, or there are too many orders.
    """
    check_count("max_orders", max_orders)
    check_count("max_length", max_length)
    costs, budget = checked_problem(costs, budget)
    space = OrderSpace(costs, budget, max_length)
    if space.count(max_orders, ordered=ordered, check=check) is None:
        raise InputError(
            f"more than max_orders={max_orders} orders of up to {max_length} of {len(costs)} candidates fit; raise "
            "max_orders, lower max_length, offer fewer candidates or use a smaller budget"
        )
    # Minus the value, cost, length and order of the best one so far, in this order, so that the smallest is best.
    best: tuple[float, int, int, Order] = (inf, 0, 0, ())
    num_scored = 0
    incumbents: list[Order] = []
    for rows in space.blocks(BATCH_SIZE, ordered=ordered):
        check()
        orders = [space.order(row) for row in rows]
        values = checked_values(score_orders(orders), orders)
        tied = np.flatnonzero(values == values.max())
        spent, lengths = space.of_rows(rows[tied])
        first = tied[np.lexsort((*rows[tied].T[::-1], lengths, spent))[0]]
        order = orders[first]
        best = min(best, (-float(values[first]), int(costs[list(order)].sum()), len(order), order))
        num_scored += len(orders)
        incumbents.append(best[-1])
    value = -best[0] if incumbents else 0.0
    return SearchResult(
        order=best[-1],
        value=value,
        utility=value,
        cost=best[1],
        num_scored=num_scored,
        num_calls=len(incumbents),
        incumbents=tuple(incumbents),
        complete=True,
    )
