"""The rounds of a search without a tree: a policy proposes, the scorer disposes.

A policy is a generator of rounds. It yields orders that it has not yielded before, the ones it wants most
first; it is resumed once they are scored, with their worths, and the incumbent then knows them. What an order is
worth, its value or that minus lambda * cost / B, is the config's `choice`; the policy searches for the most of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from search.config import SearchConfig
from search.errors import Stop
from search.exhaustive import count_orders
from search.incumbent import Incumbent
from search.result import Searching
from search.surrogate import Surrogate
from search.types import FloatArray, IntArray, Order
from search.validation import checked_values

Proposing = Generator[list[Order], FloatArray, None]
Propose = Callable[[IntArray, int, SearchConfig, Incumbent, Surrogate | None], Proposing]


def in_rounds(
    propose: Propose, costs: IntArray, budget: int, config: SearchConfig, surrogate: Surrogate | None = None
) -> Searching:
    """Run a policy as far as the config allows."""
    incumbent = Incumbent(costs, budget, config.cost_weight if config.choice == "value-minus-cost" else 0.0)
    proposing = propose(costs, budget, config, incumbent, surrogate)
    error: Exception | None = None
    try:
        orders = next(proposing, None)
        while orders:
            if config.max_scored is not None:
                orders = orders[: config.max_scored - incumbent.num_scored]
            values = checked_values((yield orders), orders)
            worths = incumbent.update(orders, values)
            if len(incumbent.orders) == config.iterations or incumbent.num_scored == config.max_scored:
                break
            orders = _resumed(proposing, worths)
    except Stop as stop:
        error = stop.error
    return incumbent.result(
        utility=incumbent.value - config.cost_weight * incumbent.cost / budget,
        complete=_all_scored(costs, budget, config, incumbent.num_scored),
        num_ranked=0 if surrogate is None else surrogate.num_ranked,
        error=error,
    )


def _resumed(proposing: Proposing, worths: FloatArray) -> list[Order] | None:
    try:
        return proposing.send(worths)
    except StopIteration:
        return None


def _all_scored(costs: IntArray, budget: int, config: SearchConfig, num_scored: int) -> bool:
    max_length = config.max_length or max(1, len(costs))
    return count_orders(costs, budget, max_length, limit=num_scored) == num_scored
