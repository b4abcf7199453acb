"""Time of the search core alone: the scorer costs next to nothing.

    python -m tests.benchmarks.bench_search

Prints JSON: the median time of one search per setting, the settings interleaved so that a slow moment of
the machine hits all of them, and the time per node of trees of about 1,000, 10,000 and 100,000 nodes.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np

from search import SearchConfig, search, search_many

NUM_CHUNKS, CHUNK_TOKENS, BUDGET_TOKENS = 50, 100, 1024
COSTS = np.full(NUM_CHUNKS, CHUNK_TOKENS)
NUM_PROBLEMS = 100
TREE_ITERATIONS = {"1k": 21, "10k": 210, "100k": 2100}


def score(orders: object) -> np.ndarray:
    """Values that depend on nothing but their number: repeatable and nearly free."""
    return np.random.default_rng(0).random(len(orders))


def seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def interleaved_medians_s(work: dict[str, Callable[[], object]], num_rounds: int) -> dict[str, float]:
    times_s = [{name: seconds(do) for name, do in work.items()} for _ in range(num_rounds)]
    return {name: median(round_s[name] for round_s in times_s) for name in work}


def bench() -> dict:
    configs = {
        "default": SearchConfig(),
        "all-children": SearchConfig(backup="all-children"),
        "parent-visits": SearchConfig(visits="parent"),
        "by-utility": SearchConfig(choice="utility"),
    }
    searches_s = interleaved_medians_s(
        {
            name: lambda config=config: search(COSTS, score, BUDGET_TOKENS, config)
            for name, config in configs.items()
        },
        num_rounds=101,
    )
    problems = [(COSTS, BUDGET_TOKENS)] * NUM_PROBLEMS
    many_s = median(seconds(lambda: search_many(problems, score)) for _ in range(5))
    tree_configs = {name: SearchConfig(iterations=number) for name, number in TREE_ITERATIONS.items()}
    trees_s = interleaved_medians_s(
        {
            name: lambda config=config: search(COSTS, score, BUDGET_TOKENS, config)
            for name, config in tree_configs.items()
        },
        num_rounds=5,
    )
    num_nodes = {
        name: search(COSTS, score, BUDGET_TOKENS, config).num_scored for name, config in tree_configs.items()
    }
    return {
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "problem": {"chunks": NUM_CHUNKS, "chunk_tokens": CHUNK_TOKENS, "budget_tokens": BUDGET_TOKENS},
        "search_ms": {name: round(1e3 * time_s, 3) for name, time_s in searches_s.items()},
        "search_many_ms_per_problem": round(1e3 * many_s / NUM_PROBLEMS, 3),
        "node_us": {
            name: {"nodes": num_nodes[name], "us": round(1e6 * time_s / num_nodes[name], 3)}
            for name, time_s in trees_s.items()
        },
    }


if __name__ == "__main__":
    print(json.dumps(bench(), indent=2))  # noqa: T201
