"""The result of a search."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from numpy.typing import ArrayLike

from search.tree.tree import SearchTree
from search.types import Order


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a search; empty, with zeros, when there is no candidate or none fits.

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
        num_ranked: Orders sent to the surrogate; 0 without one.
        error: What ended the search early; None if it ended by itself or at its deadline. Not compared.
        tree: The policy tree of the policies `paper` and `public-code`; otherwise None. Not compared.
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


SearchCoroutine = Generator[list[Order], ArrayLike | None, SearchResult]
"""A search as a coroutine: it yields orders, receives their values and returns the result."""
