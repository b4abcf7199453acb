"""Toy worlds: scorers with known values that remember what they were asked."""

from itertools import permutations
from random import Random
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


def drawn(draw):
    """A strategy of what a function draws from a generator; left to itself, Hypothesis draws mostly what is empty."""
    return st.integers(0, 2**32 - 1).map(lambda seed: draw(Random(seed)))


problems = drawn(lambda rng: ([rng.randint(0, 6) for _ in range(rng.randint(0, 5))], rng.randint(1, 12)))


def paper_config(**settings):
    """The settings of a tree search."""
    return SearchConfig(**{"policy": "paper", **settings})


configs = drawn(
    lambda rng: paper_config(
        iterations=rng.randint(1, 30),
        exploration=rng.choice([0.0, 0.3, 2.4]),
        cost_weight=rng.choice([0.0, 0.1, 0.5]),
        backup=rng.choice(["best-child", "all-children", "utility"]),
        visits=rng.choice(["total", "parent"]),
        choice=rng.choice(["value", "value-minus-cost", "mean", "utility"]),
        max_length=rng.choice([None, None, None, None, 1, 2, 3, 4]),
        parallel=rng.choice([1, 1, 2, 5]),
    )
)
"""The tree search with its settings."""

scorers = drawn(lambda rng: HashScorer(rng.randrange(10**6), rng.choice([1, 4, 2**20])))

policy_configs = drawn(
    lambda rng: SearchConfig(
        policy=rng.choice(list(POLICIES)),
        iterations=rng.randint(1, 30),
        max_scored=rng.choice([None, rng.randint(1, 60)]),
        choice=rng.choice(["value", "value-minus-cost"]),
        cost_weight=rng.choice([0.0, 0.1, 0.5]),
        max_length=rng.choice([None, None, None, None, 1, 2, 3, 4]),
    )
)
"""Every policy with its settings."""
