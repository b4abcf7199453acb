"""Types of a search, its result, and the checks of what enters it; nothing behind them checks it again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.errors import InputError

if TYPE_CHECKING:
    from search.tree import SearchTree

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

Order = tuple[int, ...]
"""An ordered combination: candidate indices, 0 being the best-ranked candidate."""

ScoreOrders = Callable[[Sequence[Order]], ArrayLike]
"""Orders in, one finite value each out, `[len(orders)]`, higher is better."""

ScoreProblemOrders = Callable[[Sequence[tuple[int, Order]]], ArrayLike]
"""Pairs (problem index, order) in, one finite value each out, `[len(pairs)]`, higher is better."""


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

LARGEST_COST = 2**53
"""Floats hold every whole number up to here exactly."""


def checked_problem(costs: ArrayLike, budget: Any) -> tuple[IntArray, int]:
    """Return costs `[num_candidates]` and budget as integers, or raise `InputError`."""
    try:
        array = np.asarray(costs)
    except ValueError as error:
        raise InputError("costs are ragged; give one whole number per candidate") from error
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise InputError(f"expected costs as a list of whole numbers, got shape {array.shape}, dtype {array.dtype}")
    # Comparisons with NaN are false, so NaN is refused, too.
    valid = (array >= 0) & (array <= LARGEST_COST) & (array == np.trunc(array))
    if not valid.all():
        worst = array[int(np.argmin(valid))]
        raise InputError(f"costs must be whole numbers from 0 to 2**53, got {worst}; round estimated costs up")
    is_number = isinstance(budget, Integral | Real) and not isinstance(budget, bool)
    if not is_number or not 1 <= budget <= LARGEST_COST or budget != int(budget):
        raise InputError(f"expected budget to be a whole number from 1 to 2**53, got {budget!r}")
    return array.astype(np.int64), int(budget)


def _number(orders: Sequence[Any]) -> str:
    return f"the order {orders[0]!r}" if len(orders) == 1 else f"{len(orders)} orders"


def checked_values(
    values: object, asked: Sequence[Any], source: str = "score_orders", named: Callable[[Sequence[Any]], str] = _number
) -> FloatArray:
    """Return the values that `source` gave the orders `asked` as floats, `[len(asked)]`, or raise `InputError`.

    `named` describes some of these orders in errors.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{source} returned no array of numbers ({error}) for {named(asked)}") from error
    if array.shape != (len(asked),):
        raise InputError(f"{source} returned values of shape {array.shape} for {named(asked)}; give one each")
    finite = np.isfinite(array)
    if not finite.all():
        worst = int(np.argmin(finite))
        raise InputError(
            f"{source} returned {array[worst]} for {named([asked[worst]])}; values must be finite: "
            "look for an overflow, a low precision or an empty text in the scorer"
        )
    return array
