"""The settings of a search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from common.checks import check_choice, check_count, check_range
from common.errors import InputError

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
        for field, names in NAMES.items():
            check_choice(field, getattr(self, field), names)
        for field in ("iterations", "parallel"):
            check_count(field, getattr(self, field))
        for field in ("max_length", "max_scored"):
            if (count := getattr(self, field)) is not None:
                check_count(field, count)
        for field in ("exploration", "cost_weight"):
            check_range(field, getattr(self, field), 0, math.inf)
        if self.policy != "paper":
            for field, allowed in NO_TREE.items():
                if (value := getattr(self, field)) not in allowed:
                    raise InputError(
                        f"{field}={value!r} needs a tree, which policy {self.policy!r} does not build; leave it "
                        "out, or use policy='paper'"
                    )
