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
from corag.ambient import counted
from experiments.bench.harness import Timing
from search import Order, SearchConfig
from search.types import FloatArray, IntArray

if TYPE_CHECKING:
    from experiments.bench.run import BenchConfig

NUM_CHUNKS, CHUNK_TOKENS, BUDGET_TOKENS = 50, 100, 1024
LARGE_TREE = 2100
"""Iterations that make a tree of about 100,000 nodes."""
CAPS = (48, 179)
"""Orders that a policy may score of a small problem; those have about 940."""
BUDGET, MAX_LENGTH = 430, 5
"""Of a small problem: upper bounds on the cost of an order, and on its candidates."""
DILUTION, SCALE = 0.12, 0.5
"""Weight of the squared cost, per (100 cost units)^2, and the factor on every value."""
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
    if config.small:
        return [*core_rows(timing, 21), *policy_rows([problems(1000, sizes=(4, 5), per_size=1)])]
    return [*core_rows(timing, LARGE_TREE), *policy_rows([problems(seed) for seed in range(1000, 1005)])]


def core_rows(timing: Timing, large_tree: int) -> Iterator[dict[str, Any]]:
    """Time the tree search, a tree of `large_tree` iterations, and every policy at 80 scored orders."""
    tree, capped = SearchConfig(policy="paper"), SearchConfig(iterations=1000, max_scored=80)
    settings = {f"{policy}, 80 orders": replace(capped, policy=policy) for policy in get_args(search.Policy)}
    large = {f"paper, {large_tree:,} iterations": replace(tree, iterations=large_tree)}
    costs = np.full(NUM_CHUNKS, CHUNK_TOKENS)
    for rounds, group in ((timing.rounds, {"paper, 10 iterations": tree} | settings), (min(timing.rounds, 3), large)):
        runs = {name: partial(search.search, costs, _free_scorer, BUDGET_TOKENS, one) for name, one in group.items()}
        seconds, results = replace(timing, rounds=rounds).run(runs)
        for name, result in results.items():
            ms = 1e3 * seconds[name]
            yield {"setting": name, "orders": result.num_scored, "ms": ms, "us_per_order": 1e3 * ms / result.num_scored}


def policy_rows(drawn: Sequence[Sequence[SyntheticProblem]]) -> Iterator[dict[str, Any]]:
    """Yield for each policy and cap the orders scored of a problem, and the optima found of a set, on average."""
    every = [problem for some in drawn for problem in some]
    best = [search.exhaustive(one.costs, one, BUDGET, MAX_LENGTH).value for one in counted("optima", every)]
    base = SearchConfig(iterations=1000, max_length=MAX_LENGTH)
    for policy in counted("policies", get_args(search.Policy)):
        for cap in CAPS:
            scored = [_scored(problem, replace(base, policy=policy, max_scored=cap)) for problem in every]
            found = [
                max(values, default=-np.inf) >= optimum - 1e-9 for values, optimum in zip(scored, best, strict=True)
            ]
            yield {
                "setting": f"{policy}, at most {cap} orders",
                "orders": fmean(map(len, scored)),
                "optima": sum(found) / len(drawn),
            }


def _scored(problem: SyntheticProblem, config: SearchConfig) -> list[float]:
    """Return the value of every order that a search scores."""
    values: list[float] = []

    def scorer(orders: Sequence[Order]) -> FloatArray:
        new = problem(orders)
        values.extend(new.tolist())
        return new

    search.search(problem.costs, scorer, BUDGET, config)
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

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Score orders, `[len(orders)]`."""
        return np.array([self._score(list(order)) for order in orders])

    def _score(self, order: list[int]) -> float:
        redundancy = self.redundancy[np.ix_(order, order)].sum() / 2
        bonus = self.bonus[order[:-1], order[1:]].sum()
        dilution = SCALE * DILUTION * (self.costs[order].sum() / 100) ** 2
        return float(self.relevance[order].sum() - redundancy + bonus - dilution)


def problems(seed: int, sizes: Sequence[int] = (4, 5, 6, 7, 8), per_size: int = 12) -> list[SyntheticProblem]:
    """Draw `per_size` problems of every size, the same ones for the same seed; they have about 940 feasible orders."""
    rng = np.random.default_rng(seed)
    return [_problem(rng, size) for size in sizes for _ in range(per_size)]


def _problem(rng: np.random.Generator, size: int) -> SyntheticProblem:
    # Ranks are uninformative, so that no policy gains from them. 30% of the pairs are redundant, 17% have a bonus.
    pairs = (size, size)
    redundancy = np.triu(rng.uniform(0, 1.1, pairs) * (rng.random(pairs) < 0.3), 1)
    bonus = rng.uniform(0, 1.3, pairs) * (rng.random(pairs) < 0.17)
    return SyntheticProblem(
        costs=rng.integers(50, 150, size, endpoint=True),
        relevance=SCALE * rng.uniform(0, 1, size),
        redundancy=SCALE * (redundancy + redundancy.T),
        bonus=SCALE * bonus,
    )
