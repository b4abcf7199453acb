"""Every feasible order, scored: the oracle for small problems."""

from __future__ import annotations

from collections.abc import Callable

from numpy.typing import ArrayLike

from search.orders import OrderSpace
from search.result import SearchResult
from search.types import Order, ScoreOrders, SearchError
from search.validation import check_at_least, checked_problem, checked_values

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
    report: Callable[[int, int], None] = lambda done, total: None,
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
        report: Called with (orders scored, orders in all) before the first batch and after each.

    Raises:
        SearchError: An argument or the scorer's answer breaks a rule, or there are too many orders.
    """
    check_at_least("max_orders", max_orders, 1)
    check_at_least("max_length", max_length, 1)
    costs, budget = checked_problem(costs, budget)
    space = OrderSpace(costs, budget, max_length)
    rows = space.enumerate(max_orders, ordered=ordered)
    if rows is None:
        raise SearchError(
            f"more than max_orders={max_orders} orders of up to {max_length} of {len(costs)} candidates fit; raise "
            "max_orders, lower max_length, offer fewer candidates or use a smaller budget"
        )
    best: Order = ()
    value = 0.0
    incumbents: list[Order] = []
    for start in range(0, len(rows), BATCH_SIZE):
        report(start, len(rows))
        batch = [space.order(row) for row in rows[start : start + BATCH_SIZE]]
        values = checked_values(score_orders(batch), batch)
        # Rows are in the order in which ties are decided, so the first of the largest wins.
        first = int(values.argmax())
        if not incumbents or values[first] > value:
            best, value = batch[first], float(values[first])
        incumbents.append(best)
    report(len(rows), len(rows))
    return SearchResult(
        order=best,
        value=value,
        utility=value,
        cost=int(costs[list(best)].sum()),
        num_scored=len(rows),
        num_calls=len(incumbents),
        incumbents=tuple(incumbents),
        complete=True,
    )
