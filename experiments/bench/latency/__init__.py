"""What one user waits for: the first selection of a warm process, and `corag ask` in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corag.index import update_index
from corag.models.minilm import minilm_encoder
from corag.naming import Spellings, split_parts
from corag.registry import embedder
from corag.text.chunking import ChunkConfig
from experiments.bench.breakdown import data_folder, spread
from experiments.bench.harness import Timing, bar_plot
from experiments.bench.latency.ask import seconds_of_ask
from experiments.bench.latency.first import ENCODER, NUM_CANDIDATES, NUM_TOKENS, equal_pools, first_selections

METHODS = "corag,corag(reranker=minilm-multihop),corag(reranker=minilm-factoid)"
NUM_QUESTIONS = 100
ROUNDS = 5
TITLE = (
    f"ms of a first selection from {NUM_CANDIDATES} new candidates of {NUM_TOKENS} tokens, and times the bare encoder; "
    "ms of CPU time of corag ask, and shares of its stages"
)
COLUMNS = {"setting": "what", "p50_ms": "p50", "p95_ms": "p95", "ratio": "ratio"}


def bench_latency(
    timing: Timing,
    *,
    data: str = "",
    methods: Spellings = METHODS,
    num_questions: int = NUM_QUESTIONS,
    budget: int = 256,
    indexes: str | Path = "runs/bench/indexes",
) -> dict[str, list[dict[str, Any]]]:
    """Time first selections with each selector in turn, and as many processes that answer a question as rounds.

    Args:
        timing: Processes, and the clock of the selections; processes are timed in CPU time.
        data: Data folder, by path or name; empty for the demo corpus.
        methods: Selectors, separated by commas.
        num_questions: The most questions; a 95th percentile wants at least 100.
        budget: Token budget of the selections.
        indexes: Folder that keeps the index, which is brought up to date.

    Returns:
        `rows`: 50th and 95th percentile, in ms, of each selector, without and with stored token states, of the encoder
        alone on the same candidates, of each stage of `corag ask` and of all of it. `ratio` is the median of a selector
        over that of the encoder, and the mean share of a stage.
    """
    folder = data_folder(data, Path(indexes))
    place = Path(indexes) / f"{folder.path.resolve().name}-{NUM_TOKENS}"
    chunking = ChunkConfig(NUM_TOKENS)
    index = update_index(folder.path, place, embedder("minilm"), chunking, overwrite=True).index
    encoder = minilm_encoder(role="reranker")
    asked = equal_pools(index, spread(folder.queries, num_questions), encoder)
    selections = first_selections(timing.now, asked, split_parts(methods), budget, encoder)
    alone = np.median(selections[ENCODER])
    rows = [_row(name, seconds, np.median(seconds) / alone) for name, seconds in selections.items()]
    stages = seconds_of_ask(place, spread(folder.queries, timing.rounds), timing.rounds)
    whole = np.sum(list(stages.values()), axis=0)
    rows += [_row(f"ask: {name}", seconds, np.sum(seconds) / whole.sum()) for name, seconds in stages.items()]
    return {"rows": [*rows, _row("ask", whole, 1.0)]}


def _row(name: str, seconds: Sequence[float], ratio: float) -> dict[str, Any]:
    p50, p95 = (1e3 * float(np.percentile(seconds, share)) for share in (50, 95))
    return {"setting": name, "p50_ms": p50, "p95_ms": p95, "ratio": float(ratio), "times": len(seconds)}


def plot(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return an SVG of the medians."""
    return bar_plot({row["setting"]: row["p50_ms"] for row in measured["rows"]}, "ms, median", texts=".0f")
