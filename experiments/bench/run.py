"""Benchmarks of CORAG itself: one table, one JSON file and one figure for each part."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from corag.checks import check_budget
from corag.cli.console import progress, stdout, table
from corag.errors import InputError
from corag.models.runtime import Runtime, in_runtime
from corag.naming import Spelling, Spellings, split_parts
from corag.registry import RERANKERS, SELECTORS
from corag.text.chunking import DEFAULT_BUDGET
from experiments.bench import (
    agent,
    breakdown,
    growth,
    latency,
    orders,
    real,
    scoring,
    search,
    selectors,
    throughput,
    units,
)
from experiments.bench.harness import Clock, Timing
from experiments.evaluation.methods import ALL
from experiments.run.journal import versions, write_atomically

BARS = ("breakdown", "growth")
"""Parts that show bars of their own."""


@dataclass(frozen=True)
class BenchConfig(Runtime):
    """Measure a part of CORAG.

    Attributes:
        part: `search`: time of the search core with a scorer that costs almost nothing, and optima of small problems
            found per scored order, by policy. `scoring`: the scoring engine against the bare encoder and against
            FlagEmbedding on joined texts, factor by factor; some minutes on two idle cores. `real`: share of the best
            value that each policy reaches on real questions; an hour the first time, when every order is scored, and
            seconds with the values cached in `out`. `selectors`: work of the simpler selectors without their models,
            and memory of clusters of up to 10,000 chunks. `orders`: orders a second of each reranker in a search, and
            its load time. `agent`: a prediction beside the embedding of its question. `units`: a question with
            sentences beside one with passages to choose from, part by part; some minutes. `breakdown`: where a
            question's time goes, from its embedding to the answer, by chunk size, selector and reranker. `growth`:
            retrieval and selection as the corpus grows, with memory and recall; a million chunks take half an hour.
            `throughput`: many questions through a selector, beside the bare encoder on the same batches, with what the
            caches save and the memory of the process. `latency`: the first selection of a warm process beside the bare
            encoder, and `corag ask` stage by stage.
        rounds: Interleaved runs of each timed setting; the median counts. By default 51 for `search`, 3 for
            `scoring`, `orders`, `units` and `breakdown`, 5 for `latency`, 11 for `selectors` and `agent`, and 1 for
            `growth` and `throughput`.
        seeds: Sets of 60 problems on which policies are compared; `search` only.
        questions: Questions asked with every setting; by default 2 for `scoring`, 10 for `breakdown`, 20 for
            `growth`, 100 for `latency` and 200 for `throughput`.
        queries: Questions that `select_many` gets at once; `scoring` only.
        clock: `wall` time, or `cpu` time of all threads together for a shared machine; not for `search` and `real`,
            best with one thread.
        data: Folder of the data folders hotpotqa and 2wikimultihopqa, or squad, for `real` and `units`; by default
            found by name. Data folder, by path or name, for `breakdown`, `growth`, `latency`, and `throughput`, which
            takes several, separated by commas; by default the demo corpus.
        model: Folder of a cross-encoder for `scoring` and `orders`; by default one of MiniLM's size with random weights
            in its head.
        rerankers: What `orders` and `breakdown` measure, separated by commas: names, folders, `name(key=value)`. For
            `orders` `all`, the default, stands for those that need no download and the cross-encoder, and others may be
            named beside it. By default `minilm-multihop,minilm-maxsim` for `breakdown`.
        methods: Selectors, separated by commas; by default `top-k,naive,corag` for `breakdown`, `top-k,corag` for
            `growth`, and `corag` with three rerankers for `latency` and `throughput`.
        chunk_tokens: Sizes of chunks; `breakdown` only.
        reader: Reader that answers; `breakdown` only.
        budget: Token budget; `breakdown`, `growth` and `throughput` only.
        num_candidates: Chunks that the index offers; `breakdown` and `growth` only.
        sizes: Numbers of chunks; `growth` only.
        indexes: Folder that keeps the indexes of `breakdown`, `growth` and `latency`; by default `indexes` in `out`.
        out: Folder for `bench-<part>.json` and `bench-<part>.svg`.
    """

    part: Literal[
        "search",
        "scoring",
        "real",
        "selectors",
        "orders",
        "agent",
        "units",
        "breakdown",
        "growth",
        "latency",
        "throughput",
    ]
    rounds: int | None = None
    seeds: int = 5
    questions: int | None = None
    queries: int = 40
    clock: Clock = "wall"
    data: str = ""
    model: str | None = None
    rerankers: Spellings | None = None
    methods: Spellings | None = None
    chunk_tokens: tuple[int, ...] = breakdown.CHUNK_TOKENS
    reader: Spelling = "minilm-reader"
    budget: int = DEFAULT_BUDGET
    num_candidates: int = 20
    sizes: tuple[int, ...] = growth.SIZES
    indexes: str | None = None
    out: str = "runs/bench"

    def __post_init__(self) -> None:
        super().__post_init__()
        usual = {"rounds": "3 to 101", "seeds": "1 to 8", "questions": "2 to 20", "queries": "40 to 200"}
        check_budget(self.budget)
        for name, numbers in usual.items():
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}; {numbers} are usual")
        for method in split_parts(self.methods):
            SELECTORS.check(method)
        for reranker in split_parts(self.rerankers):
            if reranker != ALL:
                RERANKERS.check(reranker)


PARTS: dict[str, Any] = {
    "search": search, "scoring": scoring, "real": real, "selectors": selectors, "orders": orders, "agent": agent,
    "units": units, "breakdown": breakdown, "growth": growth, "latency": latency, "throughput": throughput,
}  # fmt: skip
"""Each module has `bench_PART`, which returns `rows`, the lines of the table, and what the figure shows; the table's
`COLUMNS` and `TITLE`, the default `ROUNDS`, and `plot`, which draws the figure."""


@in_runtime
def bench(config: BenchConfig) -> dict[str, Any]:
    """Run a benchmark, print its table, and write its JSON file and its figure."""
    folder, part = Path(config.out), PARTS[config.part]
    timing = Timing(config.rounds or part.ROUNDS, config.clock)
    folder.mkdir(parents=True, exist_ok=True)
    # Some parts have bars of their own.
    with progress(f"bench {config.part}", quiet=config.part in BARS, between=True) as report:
        measured = getattr(part, f"bench_{config.part}")(timing, **_settings(config, folder))
        report(1, 1)
    result: dict[str, Any] = {
        "part": config.part,
        "rounds": timing.rounds,
        "clock": config.clock,
        "machine": platform.processor() or platform.machine(),
        "versions": versions(),
        **measured,
    }
    console = stdout()
    # Better a line that is too long than cells that are cut.
    console.width = max(console.width, 120)
    console.print(table(result["rows"], part.COLUMNS, title=part.TITLE))
    write_atomically(folder / f"bench-{config.part}.json", json.dumps(result, indent=2) + "\n")
    write_atomically(folder / f"bench-{config.part}.svg", part.plot(measured))
    return result


def _settings(config: BenchConfig, folder: Path) -> dict[str, Any]:
    """Return the settings of a part; what is not given is left to its own default."""
    model = Path(config.model) if config.model else None
    chain = {
        "data": config.data, "num_questions": config.questions, "methods": config.methods, "budget": config.budget,
        "num_candidates": config.num_candidates, "indexes": config.indexes or folder / "indexes",
    }  # fmt: skip
    settings: dict[str, dict[str, Any]] = {
        "search": {"num_seeds": config.seeds},
        "scoring": {"questions": config.questions, "queries": config.queries, "model": model},
        "real": {"root": config.data, "values": folder / "bench-real-values.sqlite"},
        "units": {"root": config.data},
        "orders": {"rerankers": config.rerankers, "model": model},
        "breakdown": chain
        | {"chunk_tokens": config.chunk_tokens, "rerankers": config.rerankers, "reader": config.reader},
        "growth": chain | {"sizes": config.sizes},
        "latency": {name: chain[name] for name in ("data", "num_questions", "methods", "indexes")},
        "throughput": {name: chain[name] for name in ("data", "num_questions", "methods", "budget")},
    }  # fmt: skip
    return {name: value for name, value in settings.get(config.part, {}).items() if value is not None}
