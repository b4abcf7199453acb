"""What a search found and what it spent."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from numpy.typing import ArrayLike

from search.tree.tree import SearchTree
from search.types import Order


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer of a search; empty, with zeros, when no candidate fits or there is none.

    Attributes:
        order: The chosen order.
        value: V, what the scorer gave it.
        utility: U of eq. 5 of it when the search ended, whatever it was chosen by; from policies without a tree,
            which do not explore, value - lambda * cost / B; from `exhaustive`, which weighs no costs, the value.
        cost: Its cost, in the unit of the budget and never above it.
        num_scored: Orders sent to the scorer.
        num_calls: Calls of the scorer that carried orders of this problem.
        num_ranked: Orders that the surrogate was asked for; 0 without one.
        incumbents: The best order after each round, that is, call of the scorer, that ran.
        complete: Whether every feasible order was scored.
        error: What stopped the search before its end; None when it ended by itself or at its deadline. Left out of
            comparisons.
        tree: The policy tree, from the policies `paper` and `public-code`; otherwise None. Left out of comparisons.
    """

    order: Order
    value: float
    utility: float
    cost: int
    num_scored: int
    num_calls: int
    incumbents: tuple[Order, ...]
    complete: bool
    num_ranked: int = 0
    error: Exception | None = field(default=None, compare=False)
    tree: SearchTree | None = field(default=None, repr=False, compare=False)


Searching = Generator[list[Order], ArrayLike | None, SearchResult]
"""A search as a coroutine: it yields orders, is sent their values and returns the result."""
