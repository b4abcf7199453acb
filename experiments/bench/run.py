"""Benchmarks of CORAG itself: a table and a JSON file for each part."""

from __future__ import annotations

import importlib
import json
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from corag.checks import check_budget, check_count
from corag.cli.console import progress, stdout, table
from corag.models.devices import hardware_of
from corag.models.minilm import from_folder
from corag.models.runtime import Runtime, in_runtime, resolve_device
from corag.naming import Spellings, split_parts
from corag.registry import SELECTORS
from corag.text.chunking import DEFAULT_BUDGET
from corag.writing import write_atomically
from experiments.bench.harness import CLOCKS, Clock, Timing
from experiments.run.journal import versions

Part = Literal["search", "selection", "gpu"]


@dataclass(frozen=True)
class BenchConfig(Runtime):
    """Measure a part of CORAG.

    Attributes:
        part: `search`: time of the search core, and optima that each policy finds per scored order. `selection`:
            latency and throughput of selectors, cold and warm, beside sentence-transformers' cosine. `gpu`: parity with
            the CPU, speed and memory on `--device`, in at most nine minutes.
        rounds: Interleaved runs of each timed setting; the median counts. By default 11 for `search`, else 3.
        clock: `wall` time, or `cpu` time of all threads together for a shared machine, best with one thread.
        questions: Questions for `selection` (by default 20).
        data: Data folder whose questions have candidates, for `selection` (or several, separated by commas) and `gpu`;
            by default the demo.
        methods: Selectors, separated by commas; `selection` only.
        budget: Token budget; `selection` only.
        weights: Folder with MiniLM's files, in any precision, in place of its package.
        small: Measure little, to try it out; not for `selection`, which has `questions`.
        out: Folder for `bench-<part>.json`.
    """

    part: Part
    rounds: int | None = None
    clock: Clock = "wall"
    questions: int | None = None
    data: str | None = None
    methods: Spellings | None = None
    budget: int = DEFAULT_BUDGET
    weights: str | None = None
    small: bool = False
    out: str = "runs/bench"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget(self.budget)
        for name in ("rounds", "questions"):
            if (value := getattr(self, name)) is not None:
                check_count(name, value, "leave it out for the default")
        for method in split_parts(self.methods):
            SELECTORS.check(method)


@in_runtime
def bench(config: BenchConfig) -> dict[str, Any]:
    """Run a benchmark, print its table, and write its JSON file."""
    # Each module has `measure`, which returns the rows of the table, its COLUMNS and TITLE, and the default ROUNDS.
    Path(config.out).mkdir(parents=True, exist_ok=True)
    module: Any = importlib.import_module(f"experiments.bench.{config.part}")
    timing = Timing(config.rounds or module.ROUNDS, CLOCKS[config.clock])
    with (
        progress(f"bench {config.part}", between=True) as report,
        from_folder(config.weights) if config.weights else nullcontext(),
    ):
        rows = module.measure(config, timing)
        device = resolve_device("reranker").device
        report(1, 1)
    result: dict[str, Any] = {
        "part": config.part,
        "rounds": timing.rounds,
        "clock": config.clock,
        "settings": asdict(config),
        "hardware": hardware_of(device),
        "versions": versions(),
        "rows": rows,
    }
    console = stdout()
    # Rather a line that is too long than cells that are cut.
    console.width = max(console.width, 120)
    console.print(table(rows, module.COLUMNS, title=module.TITLE))
    write_atomically(Path(config.out) / f"bench-{config.part}.json", json.dumps(result, indent=2) + "\n")
    return result
