"""Latency and throughput of a selection, cold and warm, beside the bare encoder.

Cold: nothing is known of the question or of its candidates, as when a question is asked for the first time. Warm: the
same question again, whose texts are in the cache. The encoder alone encodes the same candidates and does nothing else.
"""

from __future__ import annotations

from itertools import chain, islice, zip_longest
from typing import Any

import numpy as np

from corag.errors import DataError
from corag.memory import forget, usages
from corag.models.minilm import minilm_encoder
from corag.naming import Spellings, split_parts
from corag.progress import counted
from corag.registry import SELECTORS
from corag.text.chunking import DEFAULT_BUDGET
from corag.text.data import DataFolder
from corag.text.documents import passage
from corag.types import Candidate
from experiments.bench.harness import OfferedQuestion, Timing, demo_questions

METHODS = "top-k,corag,corag(reranker=minilm-multihop),corag(reranker=minilm-softsim)"
QUESTIONS = 20
NUM_CANDIDATES, CHUNK_TOKENS = 20, 128
ENCODER = "the encoder alone"
ROUNDS = 3
TITLE = "a selection, ms; many questions through select_each, questions a second"
COLUMNS = {
    "setting": "selector", "cold_p50": "cold p50", "cold_p95": "p95", "of_encoder": "of encoder",
    "warm_p50": "warm p50", "warm_p95": "p95", "per_s": "questions/s", "again_per_s": "once more",
    "cache_mb": "cache, MB",
}  # fmt: skip


def bench_selection(
    timing: Timing,
    *,
    data: str = "",
    questions: int = QUESTIONS,
    methods: Spellings = METHODS,
    budget: int = DEFAULT_BUDGET,
) -> list[dict[str, Any]]:
    """Time each selector on each question in turn, and return the lines of the table.

    Args:
        timing: Rounds over all questions, and the clock.
        data: Data folders whose questions have candidates, by path or name, separated by commas; empty for the demo.
        questions: The most questions; a 95th percentile wants at least 100.
        methods: Selectors, separated by commas.
        budget: Token budget.
    """
    asked = _questions(data, questions)
    # Selectors of the project also take many questions at once.
    selectors: dict[str, Any] = {method: SELECTORS.make(method) for method in split_parts(methods)}
    encoder = minilm_encoder(role="reranker")
    seconds: dict[str, list[float]] = {f"{name} {state}": [] for name in (*selectors, ENCODER) for state in _STATES}
    now = timing.now
    # The first round loads and compiles, and does not count.
    for number in counted("rounds", range(timing.rounds + 1)):
        for question, candidates in asked if number else asked[:1]:
            started = now()
            encoder.states(encoder.tokenize([candidate.chunk.text for candidate in candidates]).ids)
            seconds[f"{ENCODER} cold"] += [now() - started] if number else []
            for name, selector in selectors.items():
                forget()
                for state in _STATES:
                    started = now()
                    selector.select(question, candidates, budget)
                    seconds[f"{name} {state}"] += [now() - started] if number else []
    alone = float(np.median(seconds[f"{ENCODER} cold"]))
    rows = [{"setting": ENCODER, **_percentiles("cold", seconds[f"{ENCODER} cold"])}]
    for name in selectors:
        cold = seconds[f"{name} cold"]
        row = {"setting": name, **_percentiles("cold", cold), "of_encoder": float(np.median(cold)) / alone}
        rows.append(row | _percentiles("warm", seconds[f"{name} warm"]))
    for name, selector in counted("throughput", list(selectors.items())):
        forget()
        rates = {}
        for column in ("per_s", "again_per_s"):
            started = now()
            for _ in selector.select_each(asked, budget):
                pass
            rates[column] = len(asked) / (now() - started)
        (row,) = (row for row in rows if row["setting"] == name)
        row |= rates | {"cache_mb": sum(usage.nbytes for usage in usages()) / 1e6}
    return rows


_STATES = ("cold", "warm")


def _percentiles(state: str, seconds: list[float]) -> dict[str, Any]:
    return {f"{state}_p{share}": 1e3 * float(np.percentile(seconds, share)) for share in (50, 95)}


def _questions(data: str, number: int) -> list[OfferedQuestion]:
    if not data:
        return demo_questions(NUM_CANDIDATES, CHUNK_TOKENS)[:number]
    folders = [DataFolder.open(name.strip()) for name in data.split(",")]
    each = (
        ((query.question, [Candidate(passage(folder.documents[name])) for name in query.candidates])
         for query in folder.queries if query.candidates)
        for folder in folders
    )  # fmt: skip
    # In turn, so that few questions are of all folders, too.
    asked = list(islice(filter(None, chain.from_iterable(zip_longest(*each))), number))
    if not asked:
        raise DataError(f"no question of {data} has a list of candidates; give a folder whose questions have")
    return asked
