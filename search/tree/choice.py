"""The final pick: which node is the answer; never the root.

Ties: lower cost, then fewer candidates, then the lexicographically smaller order (better-ranked candidates).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from search.config import Choice, SearchConfig
from search.tree.tree import SearchTree
from search.tree.utility import cost_share, mean_reward, utility
from search.types import FloatArray, IntArray

SCORES: dict[Choice, Callable[[SearchTree, IntArray, SearchConfig], FloatArray]] = {
    "value": lambda tree, nodes, config: tree.value[nodes],  # it found the most optima
    # Eq. 5 for a node seen once, without its exploration.
    "value-minus-cost": lambda tree, nodes, config: (
        tree.value[nodes] - config.cost_weight * cost_share(tree.cost[nodes], tree.budget)
    ),
    # The first term of eq. 5, as in plain Monte Carlo tree search.
    "mean": lambda tree, nodes, config: mean_reward(tree.total[nodes], tree.visits[nodes]),
    "utility": utility,  # eq. 6, the paper read literally
}
LASTING: tuple[Choice, ...] = ("value", "value-minus-cost")
"""Choices that never change a node's score, so only new nodes can beat the best one."""


def choose(tree: SearchTree, config: SearchConfig, incumbent: int, new: slice) -> int:
    """Return the best node, given the best one so far (the root for none) and the `new` nodes since."""
    nodes = np.arange(new.start if config.choice in LASTING else tree.ROOT + 1, len(tree))
    if config.choice in LASTING and incumbent != tree.ROOT:
        nodes = np.append(nodes, incumbent)
    scores = SCORES[config.choice](tree, nodes, config)
    best: list[int] = nodes[scores == scores.max()].tolist()
    if len(best) == 1:
        return best[0]
    return min(best, key=lambda node: (tree.cost[node], tree.depth[node], tree.order(node)))
