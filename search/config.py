"""The settings of a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from search.errors import SearchError
from search.validation import check_at_least_one, check_not_negative

Backup = Literal["best-child", "all-children"]
Visits = Literal["total", "parent"]
Choice = Literal["value", "value-minus-cost", "mean", "utility"]


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """How far and by which rules to search; defaults are the paper's, or by measurement where it is silent.

    Attributes:
        iterations: Nodes to expand at most, >= 1; each is one call of the scorer.
        exploration: c of eq. 5, >= 0; higher spreads the search, 0 follows the best mean.
        cost_weight: lambda of eq. 5, >= 0, in units of value for the whole budget.
        backup: What goes up the path: the best new child's value, or every new child's (`search.mcts`).
        visits: N of eq. 5: the visits of all nodes, or the parent's (`search.utility`).
        choice: What the answer is best in (`search.choice`).
        max_length: Most candidates in an order, >= 1, or None for no bound but the budget.
    """

    iterations: int = 10
    exploration: float = 2.4
    cost_weight: float = 0.1
    backup: Backup = "best-child"
    visits: Visits = "total"
    choice: Choice = "value"
    max_length: int | None = None

    def __post_init__(self) -> None:
        check_at_least_one("iterations", self.iterations)
        check_not_negative("exploration", self.exploration)
        check_not_negative("cost_weight", self.cost_weight)
        _check_name("backup", self.backup, Backup)
        _check_name("visits", self.visits, Visits)
        _check_name("choice", self.choice, Choice)
        if self.max_length is not None:
            check_at_least_one("max_length", self.max_length)


def checked_config(config: object) -> SearchConfig:
    """Return `config` if it is a `SearchConfig`, or raise `SearchError`."""
    if not isinstance(config, SearchConfig):
        raise SearchError(
            f"config is a {type(config).__name__}; it must be a SearchConfig, such as SearchConfig(iterations=20)"
        )
    return config


def _check_name(field: str, name: object, names: Any) -> None:
    if name not in get_args(names):
        raise SearchError(f"{field} is {name!r}; it must be one of {', '.join(get_args(names))}")
