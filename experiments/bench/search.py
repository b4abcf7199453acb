"""Benchmark of the search core: its own time, and the optima that each policy finds per scored order.

The policies search small problems that can be solved exactly, with relevance, redundancy, adjacency and dilution:

    value(o) = sum_i relevance[i] - sum_{i<j} redundancy[i, j] + sum_p bonus[o_p, o_p+1] - dilution * (cost(o) / 100)^2

Policy `bayesian` assumes values made of just these effects, so its results here are better than on other values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

import search
from corag.progress import counted
from experiments.bench.harness import Timing
from search import Order, SearchConfig
from search.types import FloatArray, IntArray

if TYPE_CHECKING:
    from experiments.bench.run import BenchConfig

NUM_CHUNKS, CHUNK_TOKENS, BUDGET_TOKENS = 50, 100, 1024
LARGE_TREE = 2100
"""Iterations that make a tree of about 100,000 nodes."""
FIRST_SEED, SEEDS = 1000, 5
CAPS = (48, 179)
"""Orders that a policy may score of a small problem; those have about 940."""
SIZES = (4, 5, 6, 7, 8)
PER_SIZE = 12
MAX_LENGTH = 5

# With this distribution a problem has about 940 feasible orders; preset `public-code` finds about 35 of 60 optima in 10
# iterations and 51 in 50.
BUDGET, LOW_COST, HIGH_COST = 430, 50, 150
"""Upper bound on the cost of an order; costs of candidates are uniform whole numbers."""
RELEVANCE, REDUNDANCY, BONUS = 1.0, 1.1, 1.3
"""Largest values of a candidate, of a pair, and of an ordered adjacent pair; uniform from 0."""
REDUNDANT_SHARE, BONUS_SHARE = 0.3, 0.17
"""Shares of the pairs that are redundant, or have a bonus, at all."""
DILUTION = 0.12
"""Weight of the squared cost, per (100 cost units)^2."""
SCALE = 0.5
"""Factor on every value."""
ROUNDS = 11
TITLE = (
    f"search core, {NUM_CHUNKS} chunks of {CHUNK_TOKENS} tokens, budget {BUDGET_TOKENS}, values that cost nothing; "
    "below: policies on small problems, optima found of 60"
)
COLUMNS = {
    "setting": "setting", "orders": "orders scored", "ms": "ms a search", "us_per_order": "us an order",
    "optima": "optima found",
}  # fmt: skip


def measure(config: BenchConfig, timing: Timing) -> list[dict[str, Any]]:
    """Measure the core, and the policies on five sets of 60 problems; return the rows of the table.

    With `small`, a tree of 1,000 nodes, and one set of two problems.
    """
    iterations, drawn = (
        (21, [problems(FIRST_SEED, sizes=(4, 5), per_size=1)])
        if config.small
        else (LARGE_TREE, [problems(seed) for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)])
    )
    return [*core_rows(timing, iterations), *policy_rows(drawn)]


def core_rows(timing: Timing, large_tree: int) -> Iterator[dict[str, Any]]:
    """Time the tree search, a tree of `large_tree` iterations, and every policy at 80 scored orders."""
    tree, capped = SearchConfig(policy="paper"), SearchConfig(iterations=1000, max_scored=80)
    settings = {f"{policy}, 80 orders": replace(capped, policy=policy) for policy in get_args(search.Policy)}
    large = {f"paper, {large_tree:,} iterations": replace(tree, iterations=large_tree)}
    costs = np.full(NUM_CHUNKS, CHUNK_TOKENS)
    for rounds, group in ((timing.rounds, {"paper, 10 iterations": tree} | settings), (min(timing.rounds, 3), large)):
        runs = {
            name: partial(search.search, costs, _free_scorer, BUDGET_TOKENS, config) for name, config in group.items()
        }
        seconds, results = replace(timing, rounds=rounds).run(runs)
        for name, result in results.items():
            ms = 1e3 * seconds[name]
            yield {"setting": name, "orders": result.num_scored, "ms": ms, "us_per_order": 1e3 * ms / result.num_scored}


def policy_rows(drawn: Sequence[Sequence[SyntheticProblem]]) -> Iterator[dict[str, Any]]:
    """Yield for each policy and cap the mean over sets of problems of the optima found and of the orders scored."""
    best = [
        [search.exhaustive(one.costs, one, one.budget, one.max_length).value for one in some]
        for some in counted("optima", drawn)
    ]
    base = SearchConfig(iterations=1000, max_length=MAX_LENGTH)
    for policy in counted("policies", get_args(search.Policy)):
        for cap in CAPS:
            config = replace(base, policy=policy, max_scored=cap)
            values = [[_scored(problem, config) for problem in some] for some in drawn]
            yield {
                "setting": f"{policy}, at most {cap} orders",
                "orders": fmean(len(scored) for some in values for scored in some),
                "optima": fmean(
                    sum(max(scored, default=-np.inf) >= optimum - 1e-9 for scored, optimum in zip(*pair, strict=True))
                    for pair in zip(values, best, strict=True)
                ),
            }


def _scored(problem: SyntheticProblem, config: SearchConfig) -> list[float]:
    """Return the value of every order that a search scores."""
    values: list[float] = []

    def scorer(orders: Sequence[Order]) -> FloatArray:
        new = problem(orders)
        values.extend(new.tolist())
        return new

    search.search(problem.costs, scorer, problem.budget, config)
    return values


def _free_scorer(orders: Sequence[Order]) -> FloatArray:
    """Return values that depend on nothing but their number: repeatable and nearly free."""
    return np.random.default_rng(0).random(len(orders))


@dataclass(frozen=True, slots=True)
class SyntheticProblem:
    """One problem and its scorer; arrays `[C]` or `[C, C]`, `redundancy` symmetric with a zero diagonal."""

    costs: IntArray
    relevance: FloatArray
    redundancy: FloatArray
    bonus: FloatArray
    budget: int = BUDGET
    max_length: int = MAX_LENGTH

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Score orders, `[len(orders)]`."""
        return np.array([self._score(list(order)) for order in orders])

    def _score(self, order: list[int]) -> float:
        redundancy = self.redundancy[np.ix_(order, order)].sum() / 2
        bonus = self.bonus[order[:-1], order[1:]].sum()
        dilution = SCALE * DILUTION * (self.costs[order].sum() / 100) ** 2
        return float(self.relevance[order].sum() - redundancy + bonus - dilution)


def problems(seed: int, sizes: Sequence[int] = SIZES, per_size: int = PER_SIZE) -> list[SyntheticProblem]:
    """Draw `per_size` problems of every size, the same ones for the same seed."""
    rng = np.random.default_rng(seed)
    return [_problem(rng, size) for size in sizes for _ in range(per_size)]


def _problem(rng: np.random.Generator, size: int) -> SyntheticProblem:
    # Ranks are uninformative, so that no policy gains from them.
    pairs = (size, size)
    redundancy = np.triu(rng.uniform(0, REDUNDANCY, pairs) * (rng.random(pairs) < REDUNDANT_SHARE), 1)
    bonus = rng.uniform(0, BONUS, pairs) * (rng.random(pairs) < BONUS_SHARE)
    return SyntheticProblem(
        costs=rng.integers(LOW_COST, HIGH_COST, size, endpoint=True),
        relevance=SCALE * rng.uniform(0, RELEVANCE, size),
        redundancy=SCALE * (redundancy + redundancy.T),
        bonus=SCALE * bonus,
    )
