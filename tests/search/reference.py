"""The search as a textbook writes it: objects, recursion, no arrays; slow and plain."""

from __future__ import annotations

from math import log, sqrt


class Node:
    def __init__(self, order, parent, cost, value):
        self.order, self.parent, self.cost, self.value = order, parent, cost, value
        self.total, self.visits = value, (0 if parent is None else 1)
        self.children = []

    def subtree(self):
        yield self
        for child in self.children:
            yield from child.subtree()


def search_by_objects(costs, score_orders, budget, config):
    """Return the best order, the incumbents and {order: (visits, total)} of every node."""

    def extensions(node):
        longest = config.max_length is not None and len(node.order) == config.max_length
        fits = [c for c in range(len(costs)) if c not in node.order and node.cost + costs[c] <= budget]
        return [] if longest else fits

    def exhausted(node):
        if not node.children:
            return not extensions(node)
        return all(exhausted(child) for child in node.children)

    def utility(node):
        everywhere = sum(other.visits for other in root.subtree())
        visits = everywhere if config.visits == "total" else node.parent.visits
        net = node.total / node.visits - config.cost_weight * (node.cost / budget)
        return net + config.exploration * sqrt(log(visits) / node.visits)

    scores = {
        "value": lambda node: node.value,
        "value-minus-cost": lambda node: node.value - config.cost_weight * (node.cost / budget),
        "mean": lambda node: node.total / node.visits,
        "utility": utility,
    }

    root = Node((), None, 0, 0.0)
    incumbents = []
    for _ in range(config.iterations):
        if exhausted(root):
            break
        node = root
        while node.children:
            open_children = [child for child in node.children if not exhausted(child)]
            node = min(open_children, key=lambda child: (-utility(child), child.cost, child.order))
        orders = [(*node.order, c) for c in extensions(node)]
        values = [float(value) for value in score_orders(orders)]
        node.children = [
            Node(order, node, node.cost + costs[order[-1]], value) for order, value in zip(orders, values, strict=True)
        ]
        while node is not None:
            node.total += max(values) if config.backup == "best-child" else sum(values)
            node.visits += 1 if config.backup == "best-child" else len(values)
            node = node.parent
        rest = [node for node in root.subtree() if node is not root]
        best = min(rest, key=lambda n: (-scores[config.choice](n), n.cost, len(n.order), n.order))
        incumbents.append(best.order)
    nodes = {node.order: (node.visits, node.total) for node in root.subtree()}
    return (incumbents[-1] if incumbents else ()), tuple(incumbents), nodes
