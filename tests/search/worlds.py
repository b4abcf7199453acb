"""Toy worlds: scorers with known values that remember what they were asked."""

from itertools import permutations
from zlib import crc32

from hypothesis import strategies as st

from search import Order, SearchConfig
from search.drivers import POLICIES


class TableScorer:
    """Gives the values of a table; an order that is not in it is an error."""

    def __init__(self, table):
        self.table = table
        self.calls: list[list[Order]] = []

    @property
    def asked(self):
        return [order for call in self.calls for order in call]

    def __call__(self, orders):
        self.calls.append(list(orders))
        return [self.table[order] for order in orders]


class HashScorer(TableScorer):
    """Gives every order one of `levels` values k / levels; sums of them are exact when levels is 2**i."""

    def __init__(self, seed, levels=2**20):
        super().__init__({})
        self.seed = seed
        self.levels = levels

    def __call__(self, orders):
        self.table.update({order: self.value(order) for order in orders})
        return super().__call__(orders)

    def value(self, order):
        return crc32(repr((self.seed, order)).encode()) % self.levels / self.levels


def feasible_orders(costs, budget, max_length=None):
    """Every order within the budget, by trying all."""
    return {
        order
        for length in range(1, (max_length or len(costs)) + 1)
        for order in permutations(range(len(costs)), length)
        if sum(costs[chunk] for chunk in order) <= budget
    }


problems = st.tuples(st.lists(st.integers(0, 6), max_size=5), st.integers(1, 12))


def paper_config(**settings):
    """The settings of a tree search."""
    return SearchConfig(**{"policy": "paper", **settings})


configs = st.builds(
    paper_config,
    iterations=st.integers(1, 30),
    exploration=st.sampled_from([0.0, 0.3, 2.4]),
    cost_weight=st.sampled_from([0.0, 0.1, 0.5]),
    backup=st.sampled_from(["best-child", "all-children", "utility"]),
    visits=st.sampled_from(["total", "parent"]),
    choice=st.sampled_from(["value", "value-minus-cost", "mean", "utility"]),
    max_length=st.none() | st.integers(1, 4),
    parallel=st.sampled_from([1, 1, 2, 5]),
)
"""The tree search with its settings."""

scorers = st.builds(HashScorer, st.integers(0, 10**6), st.sampled_from([1, 4, 2**20]))

policy_configs = st.builds(
    SearchConfig,
    policy=st.sampled_from(list(POLICIES)),
    iterations=st.integers(1, 30),
    max_scored=st.none() | st.integers(1, 60),
    choice=st.sampled_from(["value", "value-minus-cost"]),
    cost_weight=st.sampled_from([0.0, 0.1, 0.5]),
    max_length=st.none() | st.integers(1, 4),
)
"""Every policy with its settings."""
