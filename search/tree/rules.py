"""The rules of the tree search: node utility (eq. 5 of the paper), back-up, and the choice of the answer."""

from __future__ import annotations

import numpy as np

from search.config import SearchConfig
from search.tree.tree import SearchTree
from search.types import FloatArray, IntArray


def utility(tree: SearchTree, nodes: slice | IntArray, config: SearchConfig) -> FloatArray:
    """Return U = W / n + c * sqrt(ln N / n) - lambda * cost / B of K scored nodes, `[K]` (eq. 5).

    N is the sum of n over all nodes, the root included, as in the paper, or with `visits="parent"` the parent's n, as
    in UCT and in the paper's public code.
    """
    visits = tree.visits[nodes]
    num_visits = tree.num_visits if config.visits == "total" else tree.visits[tree.parent[nodes]]
    bonus: FloatArray = config.exploration * np.sqrt(np.log(num_visits) / visits)
    # Added last, so that nodes of equal visits and equal net reward tie exactly.
    return tree.total[nodes] / visits - _price(tree, nodes, config) + bonus


def _price(tree: SearchTree, nodes: slice | IntArray, config: SearchConfig) -> FloatArray:
    """Return the third term of eq. 5, lambda * cost / B, `[K]`."""
    return config.cost_weight * (tree.cost[nodes] / tree.budget)


def backed_up(tree: SearchTree, node: int, values: FloatArray, config: SearchConfig) -> tuple[float, int]:
    """Return what W and n of an expanded node and of each of its ancestors grow by.

    `values` are those of its new children, which have received them before, so N of eq. 5 counts them.

    - `best-child`: the best new child's value, as one visit: algorithm 3 as its authors' later text explains it.
    - `all-children`: every new child's value, each as a visit, as the public code does.
    - `utility`: F(v) as one visit: algorithm 3 of the paper, read literally. "Compute utility F(v); w_i = w_i + F(v);
      n_i = n_i + 1; propagate the utility and visit count updates up the tree." v is the node just expanded. The only
      utility that the paper defines is eq. 5, so F(v) is U(v) before v's own visit and after its children got theirs.
      Eq. 5 excludes the root, which gains its visit and no reward.
    """
    if config.backup == "best-child":
        return float(values.max()), 1
    if config.backup == "all-children":
        return float(values.sum()), len(values)
    return (0.0 if node == tree.ROOT else float(utility(tree, slice(node, node + 1), config)[0])), 1


def choose(tree: SearchTree, config: SearchConfig, incumbent: int, new: slice) -> int:
    """Return the best node, given the best one so far (the root for none) and the `new` nodes since; never the root.

    `mean` is the first term of eq. 5, as in plain Monte Carlo tree search; `utility` is eq. 6 read literally.
    Ties go to the lower cost, then fewer candidates, then the better-ranked candidates.
    """
    if config.choice in ("mean", "utility"):
        nodes = np.arange(tree.ROOT + 1, len(tree))
    else:  # the scores of old nodes do not change
        nodes = np.arange(new.start, len(tree))
        nodes = nodes if incumbent == tree.ROOT else np.append(nodes, incumbent)
    if config.choice == "utility":
        scores = utility(tree, nodes, config)
    elif config.choice == "mean":
        scores = tree.total[nodes] / tree.visits[nodes]
    else:
        scores = tree.value[nodes]
        if config.choice == "value-minus-cost":
            scores = scores - _price(tree, nodes, config)
    best: list[int] = nodes[scores == scores.max()].tolist()
    if len(best) == 1:
        return best[0]
    return min(best, key=lambda node: (tree.cost[node], tree.depth[node], tree.order(node)))
