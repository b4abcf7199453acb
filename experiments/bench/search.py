"""Benchmark of the search: time of each policy, and the optima that it finds per scored order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from statistics import fmean, median
from time import perf_counter
from typing import Any

import numpy as np

import search
from corag.progress import counted
from experiments.bench.harness import Timing, finished, lines
from experiments.bench.problems import MAX_LENGTH, SyntheticProblem, problems
from experiments.run.drawing import new_figure
from search import Order, SearchConfig, SearchResult
from search.drivers import POLICIES
from search.types import FloatArray

NUM_CHUNKS, CHUNK_TOKENS, BUDGET_TOKENS = 50, 100, 1024
TREE_ITERATIONS = {"1k": 21, "10k": 210, "100k": 2100}
FIRST_SEED = 1000
CPU_ORDERS = 80
"""Orders scored where policies are compared by their own CPU time."""
CAPS = (12, 24, 48, 96, 179)
QUALITY_CAPS = (48, 179)
ROUNDS = 51
TITLE = (
    f"search core, {NUM_CHUNKS} chunks of {CHUNK_TOKENS} tokens, budget {BUDGET_TOKENS}; "
    "below: policies on small problems, optima found of 60"
)
COLUMNS = {
    "setting": "setting", "orders": "orders scored", "ms": "ms a search", "cpu_ms": "CPU ms a search",
    "us_per_order": "us an order", "found": "optima found",
}  # fmt: skip


def bench_search(timing: Timing, num_seeds: int) -> dict[str, list[dict[str, Any]]]:
    """Measure the core, and the policies on sets of 60 problems.

    Returns:
        `rows`: a line of the table each, means over sets; those of policies have `seeds`: what each set gave.
        `curve`: for each policy the optima found of 60 among the first orders scored, mean over sets.
    """
    solved = {
        seed: [(problem, *_solved(problem)) for problem in problems(seed)]
        for seed in counted("optima", range(FIRST_SEED, FIRST_SEED + num_seeds))
    }
    runs = {name: {seed: [_run(*one, config) for one in some] for seed, some in solved.items()}
            for name, config in counted("policies", policy_settings().items())}  # fmt: skip
    return {
        "rows": core_rows(timing) + cpu_rows(timing) + [quality_row(name, by_seed) for name, by_seed in runs.items()],
        "curve": [curve(policy, runs[f"{policy}, at most {CAPS[-1]} orders"]) for policy in POLICIES],
    }


def core_rows(timing: Timing) -> list[dict[str, Any]]:
    """Time the tree search under its settings, and on trees of about 1,000, 10,000 and 100,000 nodes."""
    tree = SearchConfig(policy="paper")
    settings = {
        "10 iterations": tree,
        "10 iterations, every child backed up": replace(tree, backup="all-children"),
        "10 iterations, parent's visits": replace(tree, visits="parent"),
        "10 iterations, chosen by utility": replace(tree, choice="utility"),
        "bayesian, at most 60 orders": SearchConfig(policy="bayesian", max_scored=60),
    }
    trees = {f"tree of {size} nodes": replace(tree, iterations=n) for size, n in TREE_ITERATIONS.items()}
    seconds, found = _timed(timing, settings)
    tree_seconds, tree_found = _timed(replace(timing, rounds=min(timing.rounds, 5)), trees)
    return [
        _row(name, result.num_scored, (seconds | tree_seconds)[name]) for name, result in (found | tree_found).items()
    ]


def cpu_rows(timing: Timing) -> list[dict[str, Any]]:
    """Measure the CPU time of every policy, at equally many scored orders."""
    config = SearchConfig(iterations=1000, max_scored=CPU_ORDERS, patience=None)
    settings = {
        f"{policy}, {CPU_ORDERS} orders of {NUM_CHUNKS} chunks": replace(config, policy=policy) for policy in POLICIES
    }
    seconds, found = _timed(Timing(min(timing.rounds, 11), "cpu"), settings)
    return [
        {"setting": name, "orders": result.num_scored, "cpu_ms": 1e3 * seconds[name]} for name, result in found.items()
    ]


def _timed(timing: Timing, settings: Mapping[str, SearchConfig]) -> tuple[dict[str, float], dict[str, SearchResult]]:
    costs = np.full(NUM_CHUNKS, CHUNK_TOKENS)
    return timing.run(
        {name: partial(search.search, costs, _free_scorer, BUDGET_TOKENS, config) for name, config in settings.items()}
    )


def policy_settings() -> dict[str, SearchConfig]:
    """Return what is compared: every policy at each cap, and the public code's by iterations."""
    base = SearchConfig(iterations=1000, max_length=MAX_LENGTH)
    capped = {
        f"{policy}, at most {cap} orders": replace(base, policy=policy, max_scored=cap)
        for policy in POLICIES
        for cap in QUALITY_CAPS
    }
    by_iterations = {
        f"public-code, {n} iterations": replace(base, policy="public-code", iterations=n) for n in (10, 50)
    }
    return capped | by_iterations | {"greedy, to its end": replace(base, policy="greedy")}


@dataclass(frozen=True)
class Run:
    """Orders scored until the optimum was among them (None: never), all orders scored, and the search's seconds."""

    found_after: int | None
    num_scored: int
    seconds: float


def quality_row(name: str, by_seed: Mapping[int, Sequence[Run]]) -> dict[str, Any]:
    """Return the line of a policy: means over sets, and what each set gave."""
    seeds = [
        {"seed": seed, "found": _num_found(runs), "orders": fmean(run.num_scored for run in runs)}
        for seed, runs in by_seed.items()
    ]
    seconds = median(run.seconds for runs in by_seed.values() for run in runs)
    row = _row(name, fmean(entry["orders"] for entry in seeds), seconds)
    return {**row, "found": fmean(entry["found"] for entry in seeds), "seeds": seeds}


def curve(policy: str, by_seed: Mapping[int, Sequence[Run]]) -> dict[str, Any]:
    """Return the optima found among the first orders scored: a lower cap ends the same search earlier."""
    return {
        "policy": policy,
        "orders": [fmean(min(cap, run.num_scored) for runs in by_seed.values() for run in runs) for cap in CAPS],
        "found": [fmean(_num_found(runs, cap) for runs in by_seed.values()) for cap in CAPS],
    }


def plot(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return an SVG of optima found against orders scored, a line for each policy."""
    curves = measured["curve"]
    figure = new_figure(6.4, 4.2)
    panel = figure.subplots()
    lines(panel, {line["policy"]: (line["orders"], line["found"]) for line in curves})
    panel.set_xscale("log", base=2)
    panel.set_xticks(CAPS, [str(cap) for cap in CAPS])
    panel.set(xlabel="orders scored (mean)", ylabel="optima found of 60")
    return finished(figure)


def _solved(problem: SyntheticProblem) -> tuple[dict[Order, float], float]:
    """Return the value of every feasible order, and the best of them."""
    value_of: dict[Order, float] = {}

    def scorer(orders: Sequence[Order]) -> FloatArray:
        values = problem(orders)
        value_of.update(zip(orders, values.tolist(), strict=True))
        return values

    return value_of, search.exhaustive(problem.costs, scorer, problem.budget, problem.max_length).value


def _run(problem: SyntheticProblem, value_of: Mapping[Order, float], optimum: float, config: SearchConfig) -> Run:
    values: list[float] = []

    def scorer(orders: Sequence[Order]) -> list[float]:
        new = [value_of[order] for order in orders]
        values.extend(new)
        return new

    started = perf_counter()
    search.search(problem.costs, scorer, problem.budget, config)
    seconds = perf_counter() - started
    hits = (place for place, value in enumerate(values, start=1) if value >= optimum - 1e-9)
    return Run(next(hits, None), len(values), seconds)


def _num_found(runs: Sequence[Run], num_scored: float = inf) -> int:
    """How many runs had the optimum among their first orders scored."""
    return sum(run.found_after is not None and run.found_after <= num_scored for run in runs)


def _row(name: str, num_scored: float, seconds: float) -> dict[str, Any]:
    return {"setting": name, "orders": num_scored, "ms": 1e3 * seconds, "us_per_order": 1e6 * seconds / num_scored}


def _free_scorer(orders: Sequence[Order]) -> FloatArray:
    """Return values that depend on nothing but their number: repeatable and nearly free."""
    return np.random.default_rng(0).random(len(orders))
