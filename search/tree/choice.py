"""The final pick: which of all nodes but the root is the answer.

Ties: lower cost, then fewer candidates, then the lexicographically smaller order, that is, the
better-ranked candidates.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from search.config import Choice, SearchConfig
from search.tree.tree import SearchTree
from search.tree.utility import cost_share, mean_reward, utility
from search.types import FloatArray, IntArray


def by_value(tree: SearchTree, nodes: IntArray, config: SearchConfig) -> FloatArray:
    """Return V, `[len(nodes)]`: found most optima when measured."""
    return tree.value[nodes]


def by_value_minus_cost(tree: SearchTree, nodes: IntArray, config: SearchConfig) -> FloatArray:
    """Return V - lambda * cost / B, `[len(nodes)]`: eq. 5 for a node seen once, without its exploration."""
    return tree.value[nodes] - config.cost_weight * cost_share(tree.cost[nodes], tree.budget)


def by_mean(tree: SearchTree, nodes: IntArray, config: SearchConfig) -> FloatArray:
    """Return W / n, `[len(nodes)]`: the first term of eq. 5, as in plain Monte Carlo tree search."""
    return mean_reward(tree.total[nodes], tree.visits[nodes])


SCORES: dict[Choice, Callable[[SearchTree, IntArray, SearchConfig], FloatArray]] = {
    "value": by_value,
    "value-minus-cost": by_value_minus_cost,
    "mean": by_mean,
    "utility": utility,  # eq. 6, the paper read literally
}
LASTING: tuple[Choice, ...] = ("value", "value-minus-cost")
"""Choices whose score of a node never changes, so that only a new node can beat the best one."""


def choose(tree: SearchTree, config: SearchConfig, incumbent: int, new: slice) -> int:
    """Return the best node, given the best one so far (the root for none yet) and the nodes made since."""
    nodes = np.arange(new.start if config.choice in LASTING else tree.ROOT + 1, len(tree))
    if config.choice in LASTING and incumbent != tree.ROOT:
        nodes = np.append(nodes, incumbent)
    scores = SCORES[config.choice](tree, nodes, config)
    return _first_of_ties(tree, nodes[scores == scores.max()])


def _first_of_ties(tree: SearchTree, nodes: IntArray) -> int:
    if len(nodes) == 1:
        return int(nodes[0])
    for column in (tree.cost, tree.depth):
        nodes = nodes[column[nodes] == column[nodes].min()]
    best: int = min(nodes.tolist(), key=tree.order)
    return best
