"""Benchmarks of CORAG itself: one table, one JSON file and one figure for each part."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from corag.console import stdout, table
from corag.errors import InputError
from experiments.bench_search import COLUMNS, TITLE, bench_search, quality_plot
from experiments.evaluate import versions
from experiments.journal import write_atomically


@dataclass(frozen=True)
class BenchConfig:
    """Measure a part of CORAG.

    Attributes:
        part: `search`: the search core's time with a scorer that costs next to nothing, and how many optima of small
            problems each policy finds with how many scored orders.
        rounds: Interleaved runs of each setting that is timed; their median counts.
        seeds: Sets of 60 problems on which policies are compared.
        out: Folder for `bench-<part>.json` and `bench-<part>.svg`.
    """

    part: Literal["search"]
    rounds: int = 51
    seeds: int = 5
    out: str = "runs/bench"

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"rounds must be at least 1, got {self.rounds}; 5 to 101 are usual")
        if self.seeds < 1:
            raise InputError(f"seeds must be at least 1, got {self.seeds}; 1 to 8 are usual")


def bench(config: BenchConfig) -> dict[str, Any]:
    """Run a benchmark, print its table, and write its JSON file and its figure."""
    result = {
        "part": config.part,
        "rounds": config.rounds,
        "machine": platform.processor() or platform.machine(),
        "versions": versions(),
        **bench_search(config.rounds, config.seeds),
    }
    stdout().print(table(result["rows"], COLUMNS, title=TITLE))
    folder = Path(config.out)
    write_atomically(folder / f"bench-{config.part}.json", json.dumps(result, indent=2) + "\n")
    write_atomically(folder / f"bench-{config.part}.svg", quality_plot(result["curve"]))
    return result
