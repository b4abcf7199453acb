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
from experiments.run.journal import versions, write_atomically

DEFAULT_ROUNDS = {"search": 51, "scoring": 3, "real": 1, "selectors": 11, "orders": 3, "agent": 11}


@dataclass(frozen=True)
class BenchConfig:
    """Measure a part of CORAG.

    Attributes:
        part: `search`: time of the search core with a scorer that costs almost nothing, and optima of small problems
            found per scored order, by policy. `scoring`: the scoring engine against the bare encoder and against
            FlagEmbedding on joined texts, factor by factor; some minutes on two idle cores. `real`: share of the best
            value that each policy reaches on real questions; an hour the first time, when every order is scored, and
            seconds with the values cached in `out`. `selectors`: work of the simpler selectors without their models,
            and memory of clusters of up to 10,000 chunks. `orders`: orders a second of each reranker in a search, and
            its load time. `agent`: a prediction beside the embedding of its question.
        rounds: Interleaved runs of each timed setting; the median counts. By default 51 for `search`, 3 for
            `scoring` and `orders`, and 11 for `selectors` and `agent`.
        seeds: Sets of 60 problems on which policies are compared; `search` only.
        questions: Questions searched with every setting; `scoring` only.
        queries: Questions that `select_many` gets at once; `scoring` only.
        clock: `wall` time, or `cpu` time of all threads together for a shared machine; `scoring`, `selectors`, `orders`
            and `agent` only, best with one thread.
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
