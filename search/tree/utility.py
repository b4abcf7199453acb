"""Node utility, eq. 5 of the paper, term by term, for K nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from search.config import SearchConfig, Visits
from search.tree.tree import SearchTree
from search.types import FloatArray, IntArray


def mean_reward(total: FloatArray, visits: IntArray) -> FloatArray:
    """Return W / n, `[K]`: the first term of eq. 5."""
    return total / visits


def exploration_bonus(visits: IntArray, num_visits: IntArray | int, exploration: float) -> FloatArray:
    """Return c * sqrt(ln N / n), `[K]`: the second term of eq. 5 (UCB, Auer 2002); N is `num_visits`."""
    return np.asarray(exploration * np.sqrt(np.log(num_visits) / visits))


def cost_share(cost: IntArray, budget: int) -> FloatArray:
    """Return cost / B, `[K]`, in [0, 1]: the third term of eq. 5 before its weight lambda."""
    return cost / budget


NUM_VISITS: dict[Visits, Callable[[SearchTree, slice | IntArray], IntArray | int]] = {
    "total": lambda tree, nodes: tree.num_visits,  # N of the paper: the sum of n over all nodes, the root included
    "parent": lambda tree, nodes: tree.visits[tree.parent[nodes]],  # N of UCT and of the paper's public code, [K]
}


def utility(tree: SearchTree, nodes: slice | IntArray, config: SearchConfig) -> FloatArray:
    """Return U = W / n + c * sqrt(ln N / n) - lambda * cost / B of scored nodes, `[K]` (eq. 5)."""
    visits = tree.visits[nodes]
    num_visits = NUM_VISITS[config.visits](tree, nodes)
    net = mean_reward(tree.total[nodes], visits) - config.cost_weight * cost_share(tree.cost[nodes], tree.budget)
    # Added last, so that nodes of equal visits and equal net reward tie exactly.
    return net + exploration_bonus(visits, num_visits, config.exploration)
