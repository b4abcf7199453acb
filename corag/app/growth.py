"""A finished policy tree as plain data, in the order in which it grew."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from corag.rerankers.scorers import CachedScorer
from corag.selectors.problem import SelectionProblem
from search import SearchConfig, SearchResult, SearchTree
from search.tree import backed_up, terms, utility

DECIMALS = 5


def tree_data(problem: SelectionProblem, result: SearchResult, config: SearchConfig, scorer: CachedScorer) -> Any:
    """Return the nodes of a tree, as columns, and the steps in which it grew; None if the policy keeps no tree.

    `tokens` are those of the order by itself, `charge` is the third term of eq. 5, `scaled` the value that
    the search saw, `best` the best order.
    """
    tree = result.tree
    if tree is None:
        return None
    nodes = slice(tree.ROOT + 1, len(tree))
    orders = [tree.order(node) for node in range(nodes.start, nodes.stop)]
    joined = np.array([problem.costs[list(order)].sum() - problem.separator_tokens for order in orders])
    node_of = {order: node for node, order in enumerate(orders, start=1)}
    best = [node_of.get(order, tree.ROOT) for order in result.incumbents]
    return {
        "parent": tree.parent.tolist(),
        "chunk": tree.chunk.tolist(),
        "tokens": [0, *joined.tolist()],
        "charge": [0.0, *_rounded(terms(tree, nodes, config)[2])] if orders else [0.0],
        "value": _rounded(np.concatenate([[0.0], scorer(orders)])) if orders else [0.0],
        "scaled": _rounded(tree.value),
        "steps": [{**step, "best": node} for step, node in zip(steps(tree, config), best, strict=True)],
        "best": node_of.get(result.order, tree.ROOT),
        "complete": result.complete,
    }


def steps(tree: SearchTree, config: SearchConfig) -> list[dict[str, Any]]:
    """Return the expansions of a tree in their order, and what eq. 5 says of its nodes after each.

    A step expands `node` into `count` children from `first` on. `visits`, `mean`, `bonus` and `utility` are columns of
    the nodes that there are after it, the root included, which has no utility.

    A tree keeps only sums. Its history follows from the order of its nodes: all children of an expansion are added at
    once, after all earlier ones.
    """
    replayed = copy(tree)
    replayed.total, replayed.visits, replayed.num_visits = np.zeros_like(tree.total), np.zeros_like(tree.visits), 0
    expanded = np.flatnonzero(tree.num_children)
    expansions = []
    for node in expanded[np.argsort(tree.first_child[expanded])].tolist():
        children = tree.children(node)
        replayed.receive(children, tree.value[children])
        reward, visits = backed_up(replayed, node, tree.value[children], config)
        path = [node]
        while path[-1] != tree.ROOT:
            path.append(int(tree.parent[path[-1]]))
        replayed.total[path] += reward
        replayed.visits[path] += visits
        replayed.num_visits += visits * len(path)
        scored = slice(tree.ROOT + 1, children.stop)
        mean, bonus, _ = terms(replayed, scored, config)
        columns = {"mean": mean, "bonus": bonus, "utility": utility(replayed, scored, config)}
        expansions.append(
            {"node": node, "first": children.start, "count": children.stop - children.start}
            | {"visits": replayed.visits[: children.stop].tolist()}
            | {name: [0.0, *_rounded(column)] for name, column in columns.items()}
        )
    return expansions


def _rounded(values: Any) -> list[float]:
    rounded: list[float] = np.round(values, DECIMALS).tolist()
    return rounded
