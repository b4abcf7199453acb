"""The search as a textbook writes it: objects, recursion, no arrays; slow and plain."""

from math import log, sqrt


def eq_5(total, visits, num_visits, cost_share, exploration, cost_weight):
    """U of a node, given N and the share of the budget that it costs."""
    return total / visits - cost_weight * cost_share + exploration * sqrt(log(num_visits) / visits)


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

    def exhausted(node, taken=()):
        if not node.children:
            return node in taken or not extensions(node)
        return all(exhausted(child, taken) for child in node.children)

    def utility(node):
        everywhere = sum(other.visits for other in root.subtree())
        visits = everywhere if config.visits == "total" else node.parent.visits
        share = node.cost / budget
        return eq_5(node.total, node.visits, visits, share, config.exploration, config.cost_weight)

    scores = {
        "value": lambda node: node.value,
        "value-minus-cost": lambda node: node.value - config.cost_weight * (node.cost / budget),
        "mean": lambda node: node.total / node.visits,
        "utility": utility,
    }

    rewards = {
        "best-child": lambda node, values: (max(values), 1),
        "all-children": lambda node, values: (sum(values), len(values)),
        "utility": lambda node, values: (utility(node) if node is not root else 0.0, 1),
    }

    root = Node((), None, 0, 0.0)
    incumbents = []
    for _ in range(config.iterations):
        if exhausted(root):
            break
        taken = []
        while len(taken) < config.parallel and not exhausted(root, taken):
            node = root
            while node.children:
                open_children = [child for child in node.children if not exhausted(child, taken)]
                node = min(open_children, key=lambda child: (-utility(child), child.cost, child.order))
            taken.append(node)
        orders = [[(*node.order, c) for c in extensions(node)] for node in taken]
        scored = iter(score_orders([order for of_node in orders for order in of_node]))
        for node, of_node in zip(taken, orders, strict=True):
            values = [float(next(scored)) for _ in of_node]
            node.children = [
                Node(order, node, node.cost + costs[order[-1]], value)
                for order, value in zip(of_node, values, strict=True)
            ]
            reward, visits = rewards[config.backup](node, values)
            while node is not None:
                node.total += reward
                node.visits += visits
                node = node.parent
        rest = [node for node in root.subtree() if node is not root]
        best = min(rest, key=lambda n: (-scores[config.choice](n), n.cost, len(n.order), n.order))
        incumbents.append(best.order)
    nodes = {node.order: (node.visits, node.total) for node in root.subtree()}
    return (incumbents[-1] if incumbents else ()), tuple(incumbents), nodes
