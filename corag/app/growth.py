"""A finished policy tree as plain data, in the order in which it grew."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from corag.rerankers.scorers import CachedScorer
from corag.selectors.problem import SelectionProblem
from search import SearchConfig, SearchResult, SearchTree
from search.tree import backed_up

DECIMALS = 6


def tree_data(problem: SelectionProblem, result: SearchResult, config: SearchConfig, scorer: CachedScorer) -> Any:
    """Return the nodes of a tree, as columns, and the steps in which it grew; None if the policy keeps no tree.

    `tokens` are those of the order by itself, `share` is the share of the budget that eq. 5 charges, `scaled` the value
    that the search saw. A step expands `node` into `count` children from `first` on, which get one visit each, and then
    adds `reward` and `visits` to `node` and all nodes above it. `best` is the best order after the step.
    """
    tree = result.tree
    if tree is None:
        return None
    orders = [tree.order(node) for node in range(1, len(tree))]
    joined = np.array([problem.costs[list(order)].sum() - problem.separator_tokens for order in orders])
    nodes = {order: node for node, order in enumerate(orders, start=1)}
    best = [nodes.get(order, tree.ROOT) for order in result.incumbents]
    return {
        "parent": tree.parent.tolist(),
        "chunk": tree.chunk.tolist(),
        "tokens": [0, *joined.tolist()],
        "share": _rounded(tree.cost / tree.budget),
        "value": _rounded(np.concatenate([[0.0], scorer(orders)])) if orders else [0.0],
        "scaled": _rounded(tree.value),
        "steps": [{**step, "best": node} for step, node in zip(steps(tree, config), best, strict=True)],
        "best": nodes.get(result.order, tree.ROOT),
        "exploration": config.exploration,
        "cost_weight": config.cost_weight,
        "complete": result.complete,
    }


def steps(tree: SearchTree, config: SearchConfig) -> list[dict[str, Any]]:
    """Return the expansions of a tree in their order, each with what it added to the nodes above.

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
        expansions.append(
            {"node": node, "first": children.start, "count": children.stop - children.start}
            | {"reward": round(reward, DECIMALS), "visits": visits}
        )
    return expansions


def _rounded(values: Any) -> list[float]:
    rounded: list[float] = np.round(values, DECIMALS).tolist()
    return rounded
