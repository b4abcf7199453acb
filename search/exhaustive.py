"""Every feasible order, scored: the oracle for small problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from numpy.typing import ArrayLike

from search.orders import OrderSpace, count_orders
from search.rounds import Incumbent
from search.types import Order, ScoreOrders, SearchError, SearchResult
from search.validation import check_at_least, checked_problem, checked_values


def exhaustive(
    costs: ArrayLike,
    score_orders: ScoreOrders,
    budget: int,
    max_length: int = 5,
    *,
    max_orders: int = 200_000,
    ordered: bool = True,
    batch_size: int = 4096,
    report: Callable[[int, int], None] | None = None,
) -> SearchResult:
    """Score every feasible order and return the one of highest value.

    Orders are made batch by batch, so that memory does not grow with their number.

    Ties: see `search.rounds.Incumbent`.

    Args:
        costs: Cost of each candidate, best-ranked first, `[num_candidates]`, whole numbers >= 0.
        score_orders: Gives one finite value per order, higher is better.
        budget: Upper bound on the cost of an order, a whole number >= 1.
        max_length: Most candidates in an order.
        max_orders: Most orders that may be scored; counted before anything is.
        ordered: False scores one ascending order per set, for scorers to which order does not matter.
        batch_size: Most orders in one call of the scorer.
        report: Called with (orders scored, orders in all) before the first batch and after each.

    Raises:
        SearchError: If an argument or the scorer's answer breaks a rule, or there are too many orders.
    """
    check_at_least("max_orders", max_orders, 1)
    check_at_least("batch_size", batch_size, 1)
    costs, budget = checked_problem(costs, budget)
    num_orders = count_orders(costs, budget, max_length, ordered=ordered, limit=max_orders)
    if num_orders > max_orders:
        raise SearchError(
            f"more than {max_orders} feasible orders of up to {max_length} of {len(costs)} candidates "
            f"fit a budget of {budget}, and max_orders allows no more: raise max_orders, lower max_length, "
            f"offer fewer candidates or use a smaller budget"
        )
    orders = _feasible_orders(OrderSpace(costs, budget, max_length), ordered)
    incumbent = Incumbent(costs)
    report = report or (lambda done, total: None)
    report(0, num_orders)
    while batch := list(islice(orders, batch_size)):
        incumbent.update(batch, checked_values(score_orders(batch), batch))
        report(incumbent.num_scored, num_orders)
    return incumbent.result(utility=incumbent.value, complete=True)


def _feasible_orders(space: OrderSpace, ordered: bool, prefix: Order = ()) -> Iterator[Order]:
    """The feasible orders that begin with a prefix, each once; unordered, those whose candidates ascend."""
    for order in space.children(prefix):
        if ordered or not prefix or order[-1] > prefix[-1]:
            yield order
            yield from _feasible_orders(space, ordered, order)
