"""Monte Carlo tree search that expands a node into all its children at once (paper, section 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from search.config import Backup, SearchConfig
from search.result import SearchCoroutine, SearchResult
from search.surrogate import Surrogate
from search.tree.choice import choose
from search.tree.tree import SearchTree
from search.tree.utility import utility
from search.types import FloatArray, IntArray, Order, StopSearch
from search.validation import checked_values


def paper(costs: IntArray, budget: int, config: SearchConfig, surrogate: Surrogate | None = None) -> SearchCoroutine:
    """Search the tree, with the config's `backup` and `visits`; the defaults are the paper's."""
    promising = None if surrogate is None else surrogate.promising
    tree = SearchTree(costs, budget, config.max_length)
    best, num_scored = tree.ROOT, 0
    incumbents: list[Order] = []
    error: Exception | None = None
    while len(incumbents) < config.iterations and not tree.cut and not tree.closed[tree.ROOT]:
        room = None if config.max_scored is None else config.max_scored - num_scored
        if room == 0:
            break
        path = _walk(tree, config)
        try:
            orders = tree.expand(path[-1], room, promising)
            values = checked_values((yield orders), orders)
        except StopSearch as stop:
            tree.retract(path[-1])
            error = stop.error
            break
        num_scored += len(orders)
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
        num_scored=num_scored,
        num_calls=len(incumbents),
        incumbents=tuple(incumbents),
        num_ranked=0 if surrogate is None else surrogate.num_ranked,
        complete=bool(tree.closed[tree.ROOT]) and not tree.pruned,
        error=error,
        tree=tree,
    )


def public_code(
    costs: IntArray, budget: int, config: SearchConfig, surrogate: Surrogate | None = None
) -> SearchCoroutine:
    """Search the tree with the `backup` and `visits` of the paper's public code."""
    return paper(costs, budget, replace(config, backup="all-children", visits="parent"), surrogate)


def _walk(tree: SearchTree, config: SearchConfig) -> list[int]:
    """Path from the root to a node not yet expanded, by the open child of largest U (paper, algorithm 2).

    Ties: lower cost, then the better-ranked candidate, the order of the children. An open node has an open child or no
    children yet, so the walk never ends in a closed node; the paper's public code revisits exhausted nodes for ever.
    """
    path = [tree.ROOT]
    while tree.num_children[path[-1]]:
        children = tree.children(path[-1])
        utilities = np.where(tree.closed[children], -np.inf, utility(tree, children, config))
        path.append(children.start + int(utilities.argmax()))
    return path


BACKUPS: dict[Backup, Callable[[FloatArray], tuple[float, int]]] = {
    "best-child": lambda values: (float(values.max()), 1),  # paper, algorithm 3
    "all-children": lambda values: (float(values.sum()), len(values)),  # public code
}
"""Reward and visits to back up, given the values of the new children."""
