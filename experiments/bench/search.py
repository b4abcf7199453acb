"""Benchmark of the search core: its own time, and the optima that each policy finds per scored order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any, get_args

import numpy as np

import search
from corag.progress import counted
from experiments.bench.harness import Timing
from experiments.bench.problems import MAX_LENGTH, SyntheticProblem, problems
from search import Order, SearchConfig
from search.types import FloatArray

NUM_CHUNKS, CHUNK_TOKENS, BUDGET_TOKENS = 50, 100, 1024
LARGE_TREE = 2100
"""Iterations that make a tree of about 100,000 nodes."""
FIRST_SEED, SEEDS = 1000, 5
CAPS = (48, 179)
"""Orders that a policy may score of a small problem; those have about 940."""
ROUNDS = 11
TITLE = (
    f"search core, {NUM_CHUNKS} chunks of {CHUNK_TOKENS} tokens, budget {BUDGET_TOKENS}, values that cost nothing; "
    "below: policies on small problems, optima found of 60"
)
COLUMNS = {
    "setting": "setting", "orders": "orders scored", "ms": "ms a search", "us_per_order": "us an order",
    "optima": "optima found",
}  # fmt: skip


def bench_search(timing: Timing, *, small: bool = False) -> list[dict[str, Any]]:
    """Measure the core, and the policies on five sets of 60 problems; return the lines of the table.

    `small` is a trial: a tree of 1,000 nodes, and one set of two problems.
    """
    iterations, drawn = (
        (21, [problems(FIRST_SEED, sizes=(4, 5), per_size=1)])
        if small
        else (LARGE_TREE, [problems(seed) for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)])
    )
    return [*core_rows(timing, iterations), *policy_rows(drawn)]


def core_rows(timing: Timing, large_tree: int) -> Iterator[dict[str, Any]]:
    """Time the tree search, a tree of `large_tree` iterations, and every policy at 80 scored orders."""
    tree = SearchConfig(policy="paper")
    capped = SearchConfig(iterations=1000, max_scored=80)
    settings = {"paper, 10 iterations": tree} | {
        f"{policy}, 80 orders": replace(capped, policy=policy) for policy in get_args(search.Policy)
    }
    for rounds, group in (
        (timing.rounds, settings),
        (min(timing.rounds, 3), {f"paper, {large_tree:,} iterations": replace(tree, iterations=large_tree)}),
    ):
        costs = np.full(NUM_CHUNKS, CHUNK_TOKENS)
        runs = {
            name: partial(search.search, costs, _free_scorer, BUDGET_TOKENS, config) for name, config in group.items()
        }
        seconds, results = replace(timing, rounds=rounds).run(runs)
        for name, result in results.items():
            spent = seconds[name]
            yield {
                "setting": name, "orders": result.num_scored, "ms": 1e3 * spent,
                "us_per_order": 1e6 * spent / result.num_scored,
            }  # fmt: skip


def policy_rows(drawn: Sequence[Sequence[SyntheticProblem]]) -> Iterator[dict[str, Any]]:
    """Yield for each policy and cap the mean over sets of problems of the optima found and of the orders scored."""
    solved = [[(problem, *_solved(problem)) for problem in some] for some in counted("optima", drawn)]
    base = SearchConfig(iterations=1000, max_length=MAX_LENGTH)
    for policy in counted("policies", get_args(search.Policy)):
        for cap in CAPS:
            config = replace(base, policy=policy, max_scored=cap)
            results = [[_search(problem, known, best, config) for problem, known, best in some] for some in solved]
            yield {
                "setting": f"{policy}, at most {cap} orders",
                "orders": fmean(scored for some in results for scored, _ in some),
                "optima": fmean(sum(optimal for _, optimal in some) for some in results),
            }


def _solved(problem: SyntheticProblem) -> tuple[dict[Order, float], float]:
    """Return the value of every feasible order, and the best of them."""
    value_of: dict[Order, float] = {}

    def scorer(orders: Sequence[Order]) -> FloatArray:
        values = problem(orders)
        value_of.update(zip(orders, values.tolist(), strict=True))
        return values

    return value_of, search.exhaustive(problem.costs, scorer, problem.budget, problem.max_length).value


def _search(
    problem: SyntheticProblem, value_of: Mapping[Order, float], best: float, config: SearchConfig
) -> tuple[int, bool]:
    """Return how many orders a search scored, and whether an optimum was among them."""
    values: list[float] = []

    def scorer(orders: Sequence[Order]) -> FloatArray:
        values.extend(value_of[order] for order in orders)
        return np.array(values[len(values) - len(orders) :])

    search.search(problem.costs, scorer, problem.budget, config)
    return len(values), max(values, default=-np.inf) >= best - 1e-9


def _free_scorer(orders: Sequence[Order]) -> FloatArray:
    """Return values that depend on nothing but their number: repeatable and nearly free."""
    return np.random.default_rng(0).random(len(orders))
