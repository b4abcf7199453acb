"""Benchmarks of CORAG itself: one table, one JSON file and one figure for each part."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from corag.cli.console import stdout, table
from corag.errors import InputError
from experiments.bench import agent, orders, real, scoring, search, selectors
from experiments.evaluation.evaluate import versions
from experiments.run.journal import write_atomically

DEFAULT_ROUNDS = {"search": 51, "scoring": 3, "real": 1, "selectors": 11, "orders": 3, "agent": 11}


@dataclass(frozen=True)
class BenchConfig:
    """Measure a part of CORAG.

    Attributes:
        part: `search`: the search core's time with a scorer that costs next to nothing, and how many optima of small
            problems each policy finds with how many scored orders. `scoring`: the scoring engine against the bare
            encoder and against FlagEmbedding on joined texts, factor by factor; some minutes on two idle cores.
            `real`: what share of the best value each policy reaches on real questions; an hour the first time, when
            every order is scored, and seconds with the values that it keeps in `out`. `selectors`: the simpler
            selectors' own work without their models, and the memory that clusters of up to 10,000 chunks take.
            `orders`: how many orders a second each reranker values in a search, and how long it takes to load.
            `agent`: a prediction beside the embedding of its question.
        rounds: Interleaved runs of each setting that is timed; their median counts. By default 51 for `search`, 3 for
            `scoring` and `orders`, and 11 for `selectors` and `agent`.
        seeds: Sets of 60 problems on which policies are compared; `search` only.
        questions: Questions that are searched in every way; `scoring` only.
        queries: Questions for `select_many` at once; `scoring` only.
        clock: `wall`: seconds by the clock. `cpu`: seconds of all threads together, for a machine that is shared;
            `scoring`, `selectors`, `orders` and `agent` only, and best with one thread.
        data: Folder of the data folders hotpotqa and 2wikimultihopqa; `real` only.
        model: Folder of a cross-encoder for `scoring` and `orders`; by default one of MiniLM's size with random weights
            in its head.
        rerankers: What `orders` measures, separated by commas: names, folders, `name:key=value`; `all` stands for
            those that need no download and the cross-encoder, and others may be named beside it.
        out: Folder for `bench-<part>.json` and `bench-<part>.svg`.
    """

    part: Literal["search", "scoring", "real", "selectors", "orders", "agent"]
    rounds: int | None = None
    seeds: int = 5
    questions: int = 2
    queries: int = 40
    clock: search.Clock = "wall"
    data: str | None = None
    model: str | None = None
    rerankers: str = "all"
    out: str = "runs/bench"

    def __post_init__(self) -> None:
        if self.rounds is not None and self.rounds < 1:
            raise InputError(f"rounds must be at least 1, got {self.rounds}; 3 to 101 are usual")
        if self.part == "real" and self.data is None:
            raise InputError("part real needs data: the folder of the data folders hotpotqa and 2wikimultihopqa")
        if self.seeds < 1:
            raise InputError(f"seeds must be at least 1, got {self.seeds}; 1 to 8 are usual")
        if self.questions < 1:
            raise InputError(f"questions must be at least 1, got {self.questions}; 2 to 20 are usual")
        if self.queries < 1:
            raise InputError(f"queries must be at least 1, got {self.queries}; 40 to 200 are usual")


def bench(config: BenchConfig) -> dict[str, Any]:
    """Run a benchmark, print its table, and write its JSON file and its figure."""
    folder = Path(config.out)
    rounds = config.rounds or DEFAULT_ROUNDS[config.part]
    model = Path(config.model) if config.model else None
    if config.part == "search":
        measured = search.bench_search(rounds, config.seeds)
        columns, title = search.COLUMNS, search.TITLE
        figure = search.quality_plot(measured["curve"])
    elif config.part == "real":
        assert config.data is not None
        folder.mkdir(parents=True, exist_ok=True)
        measured = real.bench_real(config.data, values=folder / "bench-real-values.sqlite")
        columns, title = real.COLUMNS, real.TITLE
        figure = real.value_plot(measured["curves"])
    elif config.part == "selectors":
        measured = selectors.bench_selectors(rounds, config.clock)
        columns, title = selectors.COLUMNS, selectors.TITLE
        figure = selectors.growth_plot(measured["curve"])
    elif config.part == "orders":
        measured = orders.bench_orders(rounds, config.clock, config.rerankers, model)
        columns, title = orders.COLUMNS, orders.TITLE
        figure = orders.speed_plot(measured["rows"])
    elif config.part == "agent":
        measured = agent.bench_agent(rounds, config.clock)
        columns, title = agent.COLUMNS, agent.TITLE
        figure = agent.batch_plot(measured["curve"])
    else:
        sizes = scoring.Sizes(config.questions, config.queries, model)
        measured = scoring.bench_scoring(scoring.Timing(rounds, config.clock), sizes)
        columns, title = scoring.COLUMNS, scoring.TITLE
        figure = scoring.speed_plot(measured["curve"])
    result: dict[str, Any] = {
        "part": config.part,
        "rounds": rounds,
        "clock": config.clock,
        "machine": platform.processor() or platform.machine(),
        "versions": versions(),
        **measured,
    }
    console = stdout()
    # Better a line that is too long than cells that are cut.
    console.width = max(console.width, 120)
    console.print(table(result["rows"], columns, title=title))
    write_atomically(folder / f"bench-{config.part}.json", json.dumps(result, indent=2) + "\n")
    write_atomically(folder / f"bench-{config.part}.svg", figure)
    return result
