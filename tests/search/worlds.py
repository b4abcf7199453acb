"""Toy worlds: scorers with known values that remember what they were asked."""

from functools import partial
from itertools import permutations
from random import Random
from zlib import crc32

import numpy as np
from hypothesis import strategies as st

from search import POLICIES, Order, SearchConfig


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


def policy_config(rng):
    policy = rng.choice(list(POLICIES))
    return SearchConfig(
        policy=policy,
        iterations=rng.randint(1, 30),
        max_scored=rng.choice([None, rng.randint(1, 60)]),
        choice=rng.choice(["value", "value-minus-cost"]),
        cost_weight=rng.choice([0.0, 0.1, 0.5]),
        max_length=rng.choice([None, None, None, None, 1, 2, 3, 4]),
        parallel=rng.choice([1, 2, 5]) if policy == "paper" else 1,
    )


policy_configs = drawn(policy_config)
"""Every policy with its settings."""

FAMILY_BUDGET, FAMILY_LENGTH = 430, 5
"""Bounds of a problem of the family on the cost of an order, and on its candidates."""


def family(seed, per_size):
    """Costs and scorers of problems of four to eight candidates with about 940 feasible orders.

    A value is relevance less redundancy and cost, plus a bonus for neighbours.
    """
    rng = np.random.default_rng(seed)
    for size in np.repeat([4, 5, 6, 7, 8], per_size):
        # 30% of the pairs are redundant, 17% have a bonus.
        pairs = (size, size)
        redundancy = np.triu(rng.uniform(0, 1.1, pairs) * (rng.random(pairs) < 0.3), 1)
        bonus = rng.uniform(0, 1.3, pairs) * (rng.random(pairs) < 0.17)
        costs, relevance = rng.integers(50, 150, size, endpoint=True), rng.uniform(0, 1, size)
        yield costs, partial(_worth, costs, relevance / 2, (redundancy + redundancy.T) / 2, bonus / 2)


def _worth(costs, relevance, redundancy, bonus, orders):
    return np.array(
        [
            relevance[order].sum()
            - redundancy[np.ix_(order, order)].sum() / 2
            + bonus[order[:-1], order[1:]].sum()
            - 0.06 * (costs[order].sum() / 100) ** 2
            for order in map(list, orders)
        ]
    )
