"""Latency and throughput of a selection, cold and warm, beside sentence-transformers' cosine.

Cold: nothing is known of the question or of its candidates, as when a question is asked for the first time. Warm: the
same question again, whose texts are in the cache. The cosine embeds the same question and candidates with
sentence-transformers and the same weights, in turn with the selections, and chooses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from corag.ambient import counted
from corag.memory import forget, used_bytes
from corag.naming import split_parts
from corag.optional import require
from corag.registry import SELECTORS
from corag.text.tokens import model_folder
from experiments.bench.harness import Timing, pooled_questions

if TYPE_CHECKING:
    from experiments.bench.run import BenchConfig

METHODS = "top-k,corag,corag(unit=passage),corag(reranker=minilm-softsim)"
QUESTIONS = 20
COSINE = "sentence-transformers' cosine"
STATES = ("cold", "warm")
ROUNDS = 3
TITLE = "a selection, ms; many questions through select_each, questions a second"
COLUMNS = {
    "setting": "selector", "cold_p50": "cold p50", "cold_p95": "p95", "of_cosine": "of the cosine",
    "warm_p50": "warm p50", "warm_p95": "p95", "per_s": "questions/s",
    "cache_mb": "cache, MB",
}  # fmt: skip


def measure(config: BenchConfig, timing: Timing) -> list[dict[str, Any]]:
    """Time each selector on each question in turn, and return the rows of the table."""
    asked = pooled_questions(config.data, config.questions or QUESTIONS)
    # Selectors of the project also take many questions at once.
    selectors: dict[str, Any] = {method: SELECTORS.make(method) for method in split_parts(config.methods or METHODS)}
    bi_encoder = require("sentence_transformers", "models").SentenceTransformer(str(model_folder()), device="cpu")
    seconds: dict[str, list[float]] = {f"{name} {state}": [] for name in (*selectors, COSINE) for state in STATES}
    now = timing.now
    # The first round loads and compiles, and does not count.
    for number in counted("rounds", range(timing.rounds + 1)):
        for question, candidates in asked if number else asked[:1]:
            started = now()
            vectors = bi_encoder.encode([question, *(candidate.chunk.text for candidate in candidates)])
            bi_encoder.similarity(vectors[:1], vectors[1:])
            seconds[f"{COSINE} cold"] += [now() - started] if number else []
            for name, selector in selectors.items():
                forget()
                for state in STATES:
                    started = now()
                    selector.select(question, candidates, config.budget)
                    seconds[f"{name} {state}"] += [now() - started] if number else []
    cosine = np.array(seconds[f"{COSINE} cold"])
    rows = [{"setting": COSINE, **_percentiles("cold", seconds[f"{COSINE} cold"])}]
    for name, selector in counted("throughput", list(selectors.items())):
        forget()
        started = now()
        for _ in selector.select_each(asked, config.budget):
            pass
        rows.append(
            {
                "setting": name,
                **_percentiles("cold", seconds[f"{name} cold"]),
                "of_cosine": float(np.median(np.array(seconds[f"{name} cold"]) / cosine)),
                **_percentiles("warm", seconds[f"{name} warm"]),
                "per_s": len(asked) / (now() - started),
                "cache_mb": used_bytes() / 1e6,
            }
        )
    return rows


def _percentiles(state: str, seconds: list[float]) -> dict[str, Any]:
    return {f"{state}_p{share}": 1e3 * float(np.percentile(seconds, share)) for share in (50, 95)}
