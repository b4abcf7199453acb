"""The tree search of the paper, section 4: a node is expanded into all its children at once.

The tree as arrays indexed by node, its rules (utility of eq. 5, back-up, the choice of the answer), and the search.
Letters: N nodes, C candidates, K some nodes.

With `backup="all-children", visits="parent"` it has the rules of the code published with the paper
(github.com/wang0702/CARROT, `core/mcts.py`). Not imitated: that code also expands, scores and backs up orders above
the budget and drops them in the end, counts words in eq. 5 in place of tokens, walks into an exhausted node in every
iteration left, and prefers of equal values the most visited node, then the longest order.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from search.types import FloatArray, IntArray, Order, SearchConfig, SearchCoroutine, SearchResult


class SearchTree:
    """The orders seen so far; the root is the empty order, a child appends one candidate.

    All children of a node are made at once and lie side by side, cheapest first, then better-ranked, so the first of
    several best children wins a tie. While the tree grows, its arrays have spare capacity past `len(tree)`; a search
    returns it trimmed, with arrays of shape `[N]`. Costs are in the unit of the budget.

    Attributes:
        parent: Parent node, `[N]`; `NO_PARENT` for the root.
        chunk: Candidate that the node appends, `[N]`; `NO_CHUNK` for the root.
        depth: Candidates in the node's order, `[N]`.
        cost: Cost of the node's order, `[N]`, never above the budget.
        value: V, what the scorer gave the node's order, `[N]`; 0 for the root.
        total: W, the reward at and below the node, `[N]`.
        visits: n, `[N]`.
        first_child: The first of the node's children, `[N]`; `NO_CHILD` before it is expanded.
        num_children: Number of children, `[N]`; 0 before it is expanded.
        closed: Whether nothing below the node is left to score, `[N]`.
        num_visits: Sum of `visits` over all nodes.
        budget: Upper bound on the cost of an order.
    """

    ROOT: ClassVar[int] = 0
    NO_PARENT: ClassVar[int] = -1
    NO_CHUNK: ClassVar[int] = -1
    NO_CHILD: ClassVar[int] = -1

    parent: IntArray
    chunk: IntArray
    depth: IntArray
    cost: IntArray
    value: FloatArray
    total: FloatArray
    visits: IntArray
    first_child: IntArray
    num_children: IntArray
    closed: NDArray[np.bool_]

    _INTS: ClassVar = ("parent", "chunk", "depth", "cost", "visits", "first_child", "num_children")
    _DTYPES: ClassVar = dict.fromkeys(_INTS, np.int64) | {"value": np.float64, "total": np.float64, "closed": np.bool_}

    def __init__(self, costs: IntArray, budget: int, max_length: int | None = None) -> None:
        self.budget, self.num_visits = budget, 0
        self._cut_node = self.NO_CHILD
        self._max_length = len(costs) if max_length is None else max_length
        self._by_cost = np.argsort(costs, kind="stable")
        self._sorted_costs = costs[self._by_cost]
        self._size = 0
        for name, dtype in self._DTYPES.items():
            setattr(self, name, np.zeros(0, dtype))
        self._append(1)
        self.parent[self.ROOT], self.chunk[self.ROOT] = self.NO_PARENT, self.NO_CHUNK
        self.first_child[self.ROOT] = self.NO_CHILD
        self.closed[self.ROOT] = not (costs <= budget).any()

    def __len__(self) -> int:
        return self._size

    @property
    def cut(self) -> bool:
        """Whether the last expansion dropped children because `max_scored` was reached."""
        return self._cut_node != self.NO_CHILD

    def order(self, node: int) -> Order:
        """Return the candidates on the way from the root to `node`."""
        chunks = []
        while node != self.ROOT:
            chunks.append(int(self.chunk[node]))
            node = int(self.parent[node])
        return tuple(reversed(chunks))

    def children(self, node: int) -> slice:
        """Return where the children of `node` lie in the arrays; empty before it is expanded."""
        first = int(self.first_child[node])
        return slice(first, first + int(self.num_children[node]))

    def expand(self, node: int, most: float = np.inf) -> list[Order]:
        """Make the feasible children of an open node that has none yet, and return their orders.

        A child is feasible if its candidate is not on the node's path and fits the budget, and closed if it has no
        feasible child itself.

        At most the first `most` are made.
        """
        prefix = self.order(node)
        remaining = self.budget - int(self.cost[node])
        chunks, costs = self._fitting(prefix, remaining)
        if len(prefix) + 1 == self._max_length:
            closed = np.ones(len(chunks), dtype=np.bool_)
        else:
            closed = _without_partner(costs, remaining)
        orders = [(*prefix, chunk) for chunk in chunks.tolist()]
        if most < len(chunks):
            self._cut_node, kept = node, slice(int(most))
            chunks, costs, closed, orders = chunks[kept], costs[kept], closed[kept], orders[kept]
        new = self._append(len(chunks))
        self.first_child[node] = new.start
        self.num_children[node] = len(chunks)
        self.parent[new] = node
        self.chunk[new] = chunks
        self.depth[new] = len(prefix) + 1
        self.cost[new] = costs + self.cost[node]
        self.first_child[new] = self.NO_CHILD
        self.closed[new] = closed
        return orders

    def receive(self, children: slice, values: FloatArray) -> None:
        """Store the values of new children, `[num_children]`; each counts as one visit."""
        self.value[children] = values
        self.total[children] = values
        self.visits[children] = 1
        self.num_visits += len(values)

    def back_up(self, path: list[int], reward: float, visits: int) -> None:
        """Add reward and visits to every node of a path from the root; close exhausted nodes."""
        self.total[path] += reward
        self.visits[path] += visits
        self.num_visits += visits * len(path)
        if path[-1] != self._cut_node:
            self.close(path)

    def close(self, path: list[int]) -> None:
        """Close the last node of a path if it has no open child, and those above it that this exhausts."""
        for node in reversed(path):
            if not self.closed[self.children(node)].all():
                break
            self.closed[node] = True

    def _fitting(self, prefix: Order, remaining: int) -> tuple[IntArray, IntArray]:
        """Candidates that may follow `prefix`, cheapest first, and their costs."""
        num_fitting = int(self._sorted_costs.searchsorted(remaining, side="right"))
        chunks, costs = self._by_cost[:num_fitting], self._sorted_costs[:num_fitting]
        if not prefix:
            return chunks, costs
        free = np.ones(len(self._by_cost), dtype=np.bool_)
        free[list(prefix)] = False
        free_fitting = free[chunks]
        return chunks[free_fitting], costs[free_fitting]

    def _append(self, num_nodes: int) -> slice:
        """Reserve the next `num_nodes` rows, all zero."""
        new = slice(self._size, self._size + num_nodes)
        if new.stop > len(self.parent):
            self._resize(max(new.stop, 2 * len(self.parent)))
        self._size = new.stop
        return new

    def trim(self) -> None:
        """Drop the spare capacity, so that every array has shape `[N]`."""
        self._resize(self._size)

    def _resize(self, capacity: int) -> None:
        for name in self._DTYPES:
            old = getattr(self, name)
            array = np.zeros(capacity, old.dtype)
            array[: self._size] = old[: self._size]
            setattr(self, name, array)


def _without_partner(costs: IntArray, remaining: int) -> NDArray[np.bool_]:
    """Whether no other sibling fits after each one, `[num_siblings]`, given their costs, ascending.

    A candidate that fits a child also fits its parent, so only siblings can follow, and the cheapest other one decides.
    """
    alone: NDArray[np.bool_] = costs > remaining - costs[0]
    alone[0] = len(costs) == 1 or costs[1] > remaining - costs[0]
    return alone


def terms(tree: SearchTree, nodes: slice | IntArray, config: SearchConfig) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the terms of eq. 5 of K scored nodes, `[K]` each: W / n, c * sqrt(ln N / n) and lambda * cost / B.

    N is the sum of n over all nodes, the root included, as in the paper, or with `visits="parent"` the parent's n, as
    in UCT and in the paper's public code.
    """
    visits = tree.visits[nodes]
    num_visits = tree.num_visits if config.visits == "total" else tree.visits[tree.parent[nodes]]
    bonus: FloatArray = config.exploration * np.sqrt(np.log(num_visits) / visits)
    return tree.total[nodes] / visits, bonus, _price(tree, nodes, config)


def utility(tree: SearchTree, nodes: slice | IntArray, config: SearchConfig) -> FloatArray:
    """Return U = W / n + c * sqrt(ln N / n) - lambda * cost / B of K scored nodes, `[K]` (eq. 5)."""
    mean, bonus, price = terms(tree, nodes, config)
    # The bonus is added last, so that nodes of equal visits and equal net reward tie exactly.
    return mean - price + bonus


def _price(tree: SearchTree, nodes: slice | IntArray, config: SearchConfig) -> FloatArray:
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


def choose(tree: SearchTree, config: SearchConfig, incumbent: int, first: int) -> int:
    """Return the best node, given the best one so far (the root for none) and the first node since; never the root.

    `mean` is the first term of eq. 5, as in plain Monte Carlo tree search; `utility` is eq. 6 read literally.
    Ties go to the lower cost, then fewer candidates, then the better-ranked candidates.
    """
    if config.choice in ("mean", "utility"):
        nodes = np.arange(tree.ROOT + 1, len(tree))
    else:  # the scores of old nodes do not change
        nodes = np.arange(first, len(tree))
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
