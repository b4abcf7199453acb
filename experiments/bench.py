"""Benchmarks of CORAG itself: medians of interleaved runs, one table, one JSON file."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Literal

import numpy as np

import search
from corag.console import stdout, table
from corag.errors import InputError
from corag.types import FloatArray, Order
from experiments.evaluate import versions
from experiments.journal import write_atomically

NUM_CHUNKS, CHUNK_TOKENS, BUDGET_TOKENS = 50, 100, 1024
TREE_ITERATIONS = {"1k": 21, "10k": 210, "100k": 2100}


@dataclass(frozen=True)
class BenchConfig:
    """Measure the speed of a part of CORAG.

    Attributes:
        part: `search`: the search core alone, with a scorer that costs next to nothing.
        rounds: Interleaved runs of each setting; their median counts.
        out: Folder for `bench-<part>.json`.
    """

    part: Literal["search"]
    rounds: int = 51
    out: str = "runs/bench"

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"rounds must be at least 1, got {self.rounds}; 5 to 101 are usual")


def bench(config: BenchConfig) -> dict[str, Any]:
    """Run a benchmark, print its table and write its JSON file."""
    result = {
        "part": config.part,
        "rounds": config.rounds,
        "machine": platform.processor() or platform.machine(),
        "versions": versions(),
        "rows": bench_search(config.rounds),
    }
    columns = {
        "setting": "setting",
        "orders": "orders scored",
        "ms": "ms a search",
        "us_per_order": "us an order",
    }
    title = f"search core, {NUM_CHUNKS} chunks of {CHUNK_TOKENS} tokens, budget {BUDGET_TOKENS}"
    stdout().print(table(result["rows"], columns, title=title))
    write_atomically(Path(config.out) / f"bench-{config.part}.json", json.dumps(result, indent=2) + "\n")
    return result


def bench_search(rounds: int) -> list[dict[str, Any]]:
    """Time the search core under its settings, and on trees of about 1,000, 10,000 and 100,000 nodes."""
    costs = np.full(NUM_CHUNKS, CHUNK_TOKENS)
    settings = {
        "10 iterations": search.SearchConfig(),
        "10 iterations, every child backed up": search.SearchConfig(backup="all-children"),
        "10 iterations, parent's visits": search.SearchConfig(visits="parent"),
        "10 iterations, chosen by utility": search.SearchConfig(choice="utility"),
    }
    trees = {f"tree of {size} nodes": search.SearchConfig(iterations=n) for size, n in TREE_ITERATIONS.items()}

    def run(config: search.SearchConfig) -> search.SearchResult:
        return search.search(costs, _free_scorer, BUDGET_TOKENS, config)

    seconds = {
        **interleaved_medians(settings, run, rounds),
        **interleaved_medians(trees, run, min(rounds, 5)),
    }
    rows = []
    for name, config in {**settings, **trees}.items():
        num_scored = run(config).num_scored
        rows.append(
            {
                "setting": name,
                "orders": num_scored,
                "ms": 1e3 * seconds[name],
                "us_per_order": 1e6 * seconds[name] / num_scored,
            }
        )
    return rows


def interleaved_medians(settings: Mapping[str, Any], run: Callable[[Any], object], rounds: int) -> dict[str, float]:
    """Return the median seconds of each setting.

    All take their turn in every round, so that a slow moment of the machine meets them alike.
    """
    times: dict[str, list[float]] = {name: [] for name in settings}
    for _ in range(rounds):
        for name, setting in settings.items():
            started = perf_counter()
            run(setting)
            times[name].append(perf_counter() - started)
    return {name: median(values) for name, values in times.items()}


def _free_scorer(orders: list[Order]) -> FloatArray:
    """Return values that depend on nothing but their number: repeatable and nearly free."""
    return np.random.default_rng(0).random(len(orders))
