"""The tree search of the paper, section 4: a node is expanded into all its children at once.

With `backup="all-children", visits="parent"` it has the rules of the code published with the paper
(github.com/wang0702/CARROT, `core/mcts.py`). Not imitated: that code also expands, scores and backs up orders above
the budget and drops them in the end, counts words in eq. 5 in place of tokens, walks into an exhausted node in every
iteration left, and prefers of equal values the most visited node, then the longest order.
"""

from __future__ import annotations

import numpy as np

from search.config import SearchConfig
from search.result import SearchCoroutine, SearchResult
from search.tree import SearchTree, backed_up, choose, utility
from search.types import FloatArray, IntArray, Order


def tree_search(costs: IntArray, budget: int, config: SearchConfig) -> SearchCoroutine:
    """Search the tree, with the config's `backup` and `visits`; the defaults are the paper's."""
    tree = SearchTree(costs, budget, config.max_length)
    best, num_scored = tree.ROOT, 0
    incumbents: list[Order] = []
    most = np.inf if config.max_scored is None else config.max_scored
    while len(incumbents) < config.iterations and not tree.cut and not tree.closed[tree.ROOT] and num_scored < most:
        first = len(tree)
        orders: list[Order] = []
        expanded = []
        for path in _walks(tree, config):
            if num_scored + len(orders) < most:
                orders += tree.expand(path[-1], most - num_scored - len(orders))
                expanded.append(path)
        values = yield orders
        num_scored += len(orders)
        for path in expanded:
            children = tree.children(path[-1])
            own = values[children.start - first : children.stop - first]
            tree.receive(children, own)
            tree.back_up(path, *backed_up(tree, path[-1], own, config))
        best = choose(tree, config, best, first)
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
        complete=bool(tree.closed[tree.ROOT]),
        tree=tree,
    )


def _walks(tree: SearchTree, config: SearchConfig) -> list[list[int]]:
    """Return the paths from the root to the nodes to expand this round: up to `parallel`, the most wanted first.

    Each walk treats the nodes that earlier walks chose as closed. That is where a search of one node a round would go
    next if those nodes brought nothing new; unlike a virtual loss it needs no invented reward.
    """
    # All at once: a call for each step of each walk costs more than the walk.
    utilities = np.zeros(len(tree))
    if tree.num_visits:
        utilities[1:] = utility(tree, slice(1, len(tree)), config)
    closed = tree.closed
    tree.closed = closed.copy()
    paths: list[list[int]] = []
    while len(paths) < config.parallel and not tree.closed[tree.ROOT]:
        paths.append(_walk(tree, utilities))
        tree.close(paths[-1])
    tree.closed = closed
    return paths


def _walk(tree: SearchTree, utilities: FloatArray) -> list[int]:
    """Return the path from the root to a node not yet expanded, by the open child of largest U (paper, algorithm 2).

    Ties: lower cost, then the better-ranked candidate, the order of the children. An open node has an open child or no
    children yet, so the walk never ends in a closed node; the paper's public code revisits exhausted nodes for ever.
    """
    path = [tree.ROOT]
    of_open = np.where(tree.closed[: len(tree)], -np.inf, utilities)
    while tree.num_children[path[-1]]:
        children = tree.children(path[-1])
        path.append(children.start + int(of_open[children].argmax()))
    return path
