"""The settings of a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from search.types import SearchError
from search.validation import check_at_least, check_not_negative

Policy = Literal["bayesian", "beam", "paper", "public-code"]
Backup = Literal["best-child", "all-children", "utility"]
Visits = Literal["total", "parent"]
Choice = Literal["value", "value-minus-cost", "mean", "utility"]
Preset = Literal["paper", "public-code"]

TREE_POLICIES: tuple[Policy, ...] = ("paper", "public-code")
NAMES = {"policy": Policy, "backup": Backup, "visits": Visits, "choice": Choice}

_TREE: dict[str, Any] = {"policy": "paper", "iterations": 10, "exploration": 2.4, "cost_weight": 0.1}
PRESETS: dict[Preset, dict[str, Any]] = {
    "paper": {**_TREE, "backup": "utility", "visits": "total", "choice": "utility"},
    "public-code": {**_TREE, "backup": "all-children", "visits": "parent", "choice": "value"},
}
"""The settings of the sources, for values that are raw logits of a cross-encoder.

`paper`: section 6.1, algorithm 3 read literally, N over all nodes, the answer by eq. 6. `public-code`: what the code
published with the paper runs without its agent; `search.tree.mcts` says what is left out of it.
"""


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """Settings of a search; defaults are the paper's, or by measurement where it is silent.

    Attributes:
        iterations: Most rounds, >= 1; each is one scorer call, for the tree policies `parallel` nodes expanded.
        exploration: c of eq. 5, >= 0; higher spreads the search, 0 follows the best mean.
        cost_weight: lambda of eq. 5, >= 0, in units of value for the whole budget.
        backup: What goes up the path: the best new child's value, every new child's, or the utility of the node that
            was expanded (`search.tree.rules.backed_up`).
        visits: N of eq. 5: the visits of all nodes, or the parent's.
        choice: What the answer maximises. `mean` and `utility` need the visits of a tree; the other
            policies search for the best `value` or `value-minus-cost`.
        max_length: Most candidates in an order, >= 1, or None for no bound but the budget.
        policy: What is scored next. `bayesian`, the default, scores the orders of largest expected improvement under a
            Gaussian process; it finds most for equally many scored orders (56 of 60 optima with 40, where `paper`
            finds 32 with 48). `beam` extends the three best orders of each length, for scorers that cost next to
            nothing. `paper` is the paper's tree search. `public-code` is the same with the rules of the code
            published with the paper (CARROT): its `backup` is all-children, its `visits` the parent's.
        max_scored: Most orders sent to the scorer, >= 1, or None for no bound but the iterations. The last round is cut
            to its first orders; of a node's children those are the cheapest, the better-ranked of equals first.
        parallel: Most nodes that the tree policies expand each round, >= 1, scored in one call (paper, section 8). More
            of them spread the search and wait for the scorer less often.
    """

    iterations: int = 10
    exploration: float = 2.4
    cost_weight: float = 0.1
    backup: Backup = "best-child"
    visits: Visits = "total"
    choice: Choice = "value"
    max_length: int | None = None
    policy: Policy = "bayesian"
    max_scored: int | None = None
    parallel: int = 1

    def __post_init__(self) -> None:
        if self.policy == "public-code":
            object.__setattr__(self, "backup", "all-children")
            object.__setattr__(self, "visits", "parent")
        for field, names in NAMES.items():
            if (name := getattr(self, field)) not in get_args(names):
                raise SearchError(f"expected {field} to be one of {', '.join(get_args(names))}; got {name!r}")
        for field in ("iterations", "parallel"):
            check_at_least(field, getattr(self, field), 1)
        for field in ("max_length", "max_scored"):
            if (count := getattr(self, field)) is not None:
                check_at_least(field, count, 1)
        for field in ("exploration", "cost_weight"):
            check_not_negative(field, getattr(self, field))
        if self.policy not in TREE_POLICIES and (self.choice in ("mean", "utility") or self.parallel > 1):
            raise SearchError(
                f"choice={self.choice!r} and parallel={self.parallel} need a tree, which policy {self.policy!r} does "
                f"not build; use choice='value' or 'value-minus-cost' and parallel=1, or policy "
                f"{' or '.join(TREE_POLICIES)}"
            )
