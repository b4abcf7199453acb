"""The search itself: Monte Carlo tree search that expands a node into all its children at once.

It does no I/O: it yields orders to be scored and is sent their values, so that one core serves one query,
many in lock-step, and scorers that are awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np
from numpy.typing import ArrayLike

from search.choice import choose
from search.config import Backup, SearchConfig, checked_config
from search.result import SearchResult
from search.tree import SearchTree
from search.types import FloatArray, Order
from search.utility import utility
from search.validation import checked_problem, checked_values

Searching = Generator[list[Order], ArrayLike | None, SearchResult]


def searching(costs: ArrayLike, budget: int, config: SearchConfig) -> Searching:
    """Return a coroutine that yields orders to be scored and returns the result.

    Each yield is one iteration: a non-empty list of feasible orders, none of which was yielded before.
    Send one finite value per order, `[len(orders)]`, higher is better.

    Args:
        costs: Cost of each candidate, best-ranked first, `[num_candidates]`, whole numbers >= 0.
        budget: The most that an order may cost, a whole number >= 1.
        config: The settings.

    Raises:
        SearchError: At the call for a bad problem or config, at a `send` for bad values.
    """
    config = checked_config(config)
    return _searching(SearchTree(*checked_problem(costs, budget), config.max_length), config)


def _searching(tree: SearchTree, config: SearchConfig) -> Searching:
    best = tree.ROOT
    incumbents: list[Order] = []
    while len(incumbents) < config.iterations and not tree.closed[tree.ROOT]:
        path = _walk(tree, config)
        orders = tree.expand(path[-1])
        values = checked_values((yield orders), orders)
        children = tree.children(path[-1])
        tree.receive(children, values)
        tree.back_up(path, *BACKUPS[config.backup](values))
        best = choose(tree, config, best, children)
        incumbents.append(tree.order(best))
    tree.trim()
    return SearchResult(
        order=tree.order(best),
        value=float(tree.value[best]),
        utility=float(utility(tree, slice(best, best + 1), config)[0]) if incumbents else 0.0,
        cost=int(tree.cost[best]),
        num_scored=len(tree) - 1,
        num_calls=len(incumbents),
        incumbents=tuple(incumbents),
        complete=bool(tree.closed[tree.ROOT]),
        tree=tree,
    )


def _walk(tree: SearchTree, config: SearchConfig) -> list[int]:
    """Path from the root to a node not yet expanded, by the open child of largest U (paper, algorithm 2).

    Ties: lower cost, then the better-ranked candidate, which is how children lie. An open node has an open
    child or no children yet, so the walk never ends in a closed node; the paper's public code walks into
    exhausted nodes for ever.
    """
    path = [tree.ROOT]
    while tree.num_children[path[-1]]:
        children = tree.children(path[-1])
        utilities = np.where(tree.closed[children], -np.inf, utility(tree, children, config))
        path.append(children.start + int(utilities.argmax()))
    return path


def best_child(values: FloatArray) -> tuple[float, int]:
    """Reward and visits that go up the path: the best new child's value, one visit (paper, algorithm 3)."""
    return float(values.max()), 1


def all_children(values: FloatArray) -> tuple[float, int]:
    """Reward and visits that go up the path: every new child's value, a visit each (paper's public code)."""
    return float(values.sum()), len(values)


BACKUPS: dict[Backup, Callable[[FloatArray], tuple[float, int]]] = {
    "best-child": best_child,
    "all-children": all_children,
}
