"""What a search found and what it spent."""

from __future__ import annotations

from dataclasses import dataclass, field

from search.tree import SearchTree
from search.types import Order


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer of a search; empty, with zeros, when no candidate fits or there is none.

    Attributes:
        order: The chosen order.
        value: V, what the scorer gave it.
        utility: U of eq. 5 of it when the search ended, whatever it was chosen by; from `exhaustive`, which
            neither explores nor weighs costs, the value.
        cost: Its cost, in the unit of the budget and never above it.
        num_scored: Orders sent to the scorer.
        num_calls: Calls of the scorer that carried orders of this problem.
        incumbents: The best order after each iteration that ran; from `exhaustive`, after each call.
        complete: Whether every feasible order was scored.
        tree: The policy tree; None from `exhaustive`. Left out of comparisons.
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
