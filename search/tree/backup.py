"""Back-up: what an expanded node and its ancestors gain, given the values of its new children.

Each function returns the reward that W grows by and the visits that n grows by, at the node and at every ancestor.
The new children have received their own values before, so N of eq. 5 counts them.
"""

from __future__ import annotations

from collections.abc import Callable

from search.config import Backup, SearchConfig
from search.tree.tree import SearchTree
from search.tree.utility import utility
from search.types import FloatArray


def best_child(tree: SearchTree, node: int, values: FloatArray, config: SearchConfig) -> tuple[float, int]:
    """Return the best new child's value, as one visit: algorithm 3 as its authors' later text explains it."""
    return float(values.max()), 1


def all_children(tree: SearchTree, node: int, values: FloatArray, config: SearchConfig) -> tuple[float, int]:
    """Return every new child's value, each as a visit, as the public code does."""
    return float(values.sum()), len(values)


def node_utility(tree: SearchTree, node: int, values: FloatArray, config: SearchConfig) -> tuple[float, int]:
    """Return F(v) as one visit: algorithm 3 of the paper, read literally.

    "Compute utility F(v); w_i = w_i + F(v); n_i = n_i + 1; propagate the utility and visit count updates up the tree."
    v is the node that NodeSelection returned, the one just expanded. The only utility that the paper defines is eq. 5,
    so F(v) is U(v) with W, n and N as they stand when the update runs: before v's own visit, after its children got
    theirs. Every ancestor gains the same F(v) and one visit. Eq. 5 excludes the root, whose W decides nothing; it gains
    its visit, which N counts, and no reward.

    The text leaves open: whether F is U of eq. 5, exploration and cost included, the value V alone, or the utility of
    the best new child (v's own new children do not enter F(v) but through N); whether N counts them already; and
    whether an ancestor gains F(v) or its own utility.
    """
    if node == tree.ROOT:
        return 0.0, 1
    return float(utility(tree, slice(node, node + 1), config)[0]), 1


BACKUPS: dict[Backup, Callable[[SearchTree, int, FloatArray, SearchConfig], tuple[float, int]]] = {
    "best-child": best_child,
    "all-children": all_children,
    "utility": node_utility,
}
