"""Settings and result of a search, and the checks of what enters it; nothing behind them checks it again."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.checks import check_choice, check_count, check_range
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


Policy = Literal["paper", "bayesian"]
Backup = Literal["best-child", "all-children", "utility"]
Visits = Literal["total", "parent"]
Choice = Literal["value", "value-minus-cost", "mean", "utility"]
Preset = Literal["paper", "public-code"]

NAMES = {"policy": Policy, "backup": Backup, "visits": Visits, "choice": Choice}

NO_TREE: dict[str, tuple[Any, ...]] = {
    "backup": ("best-child",), "visits": ("total",), "parallel": (1,), "choice": ("value", "value-minus-cost"),
}  # fmt: skip
"""What a search without a tree allows of these settings."""

PRESETS: dict[Preset, dict[str, Any]] = {
    "paper": {"backup": "utility", "choice": "utility"},
    "public-code": {"backup": "all-children", "visits": "parent"},
}
"""How the settings of the sources differ from the defaults, which suit the raw logits of a cross-encoder.

`paper`: section 6.1, algorithm 3 read literally, N over all nodes, the answer by eq. 6. `public-code`: what the code
published with the paper runs without its agent; `search.tree` says what is left out of it.
"""


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """Settings of a search; defaults are the paper's, or by measurement where it is silent.

    Attributes:
        iterations: Most rounds, >= 1; each is one scorer call, for the tree `parallel` nodes expanded.
        exploration: c of eq. 5, >= 0; higher spreads the search, 0 follows the best mean.
        cost_weight: lambda of eq. 5, >= 0, in units of value for the whole budget.
        backup: What goes up the path: the best new child's value, every new child's, or the utility of the node that
            was expanded (`search.tree.backed_up`).
        visits: N of eq. 5: the visits of all nodes, or the parent's.
        choice: What the answer maximises. `mean` and `utility` need the visits of a tree.
        max_length: Most candidates in an order, >= 1, or None for no bound but the budget.
        policy: What is scored next. `paper` is the paper's tree search. `bayesian` scores the orders of largest
            expected improvement under a Gaussian process: it needs the fewest scored orders, for values that are slow.
        max_scored: Most orders sent to the scorer, >= 1, or None for no bound but the iterations. The last round is cut
            to its first orders; of a node's children those are the cheapest, the better-ranked of equals first.
        parallel: Most nodes that the tree expands each round, >= 1, scored in one call (paper, section 8), for scorers
            whose calls are slow: 4 need a third of the calls and find 39 of 42.5 optima (lab notebook).
    """

    iterations: int = 10
    exploration: float = 2.4
    cost_weight: float = 0.1
    backup: Backup = "best-child"
    visits: Visits = "total"
    choice: Choice = "value"
    max_length: int | None = None
    policy: Policy = "paper"
    max_scored: int | None = None
    parallel: int = 1

    def __post_init__(self) -> None:
        for name, names in NAMES.items():
            check_choice(name, getattr(self, name), names)
        for name in ("iterations", "parallel"):
            check_count(name, getattr(self, name))
        for name in ("max_length", "max_scored"):
            if (count := getattr(self, name)) is not None:
                check_count(name, count)
        for name in ("exploration", "cost_weight"):
            check_range(name, getattr(self, name), 0, math.inf)
        if self.policy != "paper":
            for name, allowed in NO_TREE.items():
                if (value := getattr(self, name)) not in allowed:
                    raise InputError(
                        f"{name}={value!r} needs a tree, which policy {self.policy!r} does not build; leave it "
                        "out, or use policy='paper'"
                    )


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
