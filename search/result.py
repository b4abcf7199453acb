"""The result of a search, and what a search is while it runs."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from search.tree import SearchTree
from search.types import FloatArray, Order


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a search; empty, with zeros, if there is no candidate or none fits.

    Attributes:
        order: The chosen order.
        value: V, its score.
        utility: U of eq. 5 at the end of the search, whatever the order was chosen by; for policies without a tree,
            which do not explore, value - lambda * cost / B; for `exhaustive`, which does not weigh costs, the value.
        cost: Its cost, in the unit of the budget, at most the budget.
        num_scored: Orders sent to the scorer.
        num_calls: Scorer calls that contained orders of this problem.
        incumbents: The best order after each round, that is, after each scorer call.
        complete: Whether every feasible order was scored.
        tree: The policy tree of the policy `paper`; otherwise None. Not compared.
    """

    order: Order
    value: float
    utility: float
    cost: int
    num_scored: int
    num_calls: int
    incumbents: tuple[Order, ...]
    complete: bool
    tree: SearchTree | None = field(default=None, repr=False, compare=False)


SearchCoroutine = Generator[list[Order], FloatArray, SearchResult]
"""A search of one problem.

Each yield is one round: a non-empty list of feasible orders, none of which was yielded before. It receives their
values, `[len(orders)]`, and returns the result.
"""
