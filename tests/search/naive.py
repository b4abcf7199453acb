"""The searches of the paper and of its public code, written from their descriptions alone; slow and plain.

Every order is a key, its statistics stand in plain dictionaries, and the walk is a recursion as in algorithm 2. Two
decisions are this project's, as in its own search: only orders within the budget exist, and a node below which nothing
is left to score is not walked into again.
"""

from __future__ import annotations

from math import log, sqrt


class Naive:
    """Values V, rewards w and visits n of the orders seen so far, and the orders that were expanded."""

    def __init__(self, costs, value_of, budget, c, weight):
        self.costs, self.value_of, self.budget, self.c, self.weight = costs, value_of, budget, c, weight
        self.V, self.w, self.n, self.expanded = {}, {(): 0.0}, {(): 0}, set()

    def cost(self, order):
        return sum(self.costs[chunk] for chunk in order)

    def children(self, order):
        """Every order that appends one of the other chunks and stays within the budget."""
        appended = [(*order, chunk) for chunk in range(len(self.costs)) if chunk not in order]
        return [child for child in appended if self.cost(child) <= self.budget]

    def is_exhausted(self, order):
        children = self.children(order)
        if order not in self.expanded:
            return not children
        return all(self.is_exhausted(child) for child in children)

    def utility(self, order, num_visits):
        """Equation 5."""
        bonus = self.c * sqrt(log(num_visits) / self.n[order])
        return self.w[order] / self.n[order] + bonus - self.weight * self.cost(order) / self.budget

    def node_selection(self, order):
        """Algorithm 2: the node to expand, by the largest utility in every layer."""
        if order not in self.expanded:
            return order
        open_children = [child for child in self.children(order) if not self.is_exhausted(child)]
        return self.node_selection(max(open_children, key=lambda child: self.utility(child, self.N(child))))

    def expand(self, order):
        self.expanded.add(order)
        for child in self.children(order):
            self.V[child] = self.w[child] = self.value_of(child)
            self.n[child] = 1

    def run(self, iterations):
        """Algorithm 1; returns the best node."""
        for _ in range(iterations):
            if self.is_exhausted(()):
                break
            v = self.node_selection(())
            self.expand(v)
            self.update(v)
        return max(self.V, key=self.worth, default=())


class Paper(Naive):
    """Algorithms 1 to 3 and equations 5 and 6."""

    def N(self, order):  # noqa: N802  (the paper's name)
        """The visits of all nodes."""
        return sum(self.n.values())

    def update(self, v):
        """Algorithm 3: w += F(v) and n += 1 for v and everything above it."""
        F = 0.0 if v == () else self.utility(v, self.N(v))  # noqa: N806
        for depth in range(len(v) + 1):
            self.w[v[:depth]] += F
            self.n[v[:depth]] += 1

    def worth(self, order):
        """Equation 6."""
        return self.utility(order, self.N(order))


class PublicCode(Naive):
    """Every child's value goes up; N is the parent's visits; the answer is the order that the reranker values most."""

    def N(self, order):  # noqa: N802
        return self.n[order[:-1]]

    def update(self, v):
        for child in self.children(v):
            for depth in range(len(v) + 1):
                self.w[v[:depth]] += self.V[child]
                self.n[v[:depth]] += 1

    def worth(self, order):
        return self.V[order]
