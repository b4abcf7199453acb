"""Scoring by a cross-encoder: ours beside the bare model and FlagEmbedding, and many questions at once.

Self-contained: all-MiniLM-L6-v2 with a random head as cross-encoder, and chunks of the demo corpus. The values are
meaningless, but they cost what those of a trained model of that size cost.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

import corag
from corag.errors import InputError
from corag.models.engine import quiet
from corag.models.runtime import place
from corag.optional import require
from corag.registry import SELECTORS
from corag.text.documents import SEPARATOR
from corag.types import FloatArray
from experiments.bench.harness import (
    OfferedQuestion,
    Timing,
    demo_questions,
    perfect_batches,
    run_batches,
    save_cross_encoder,
)

CHUNK_TOKENS, NUM_CANDIDATES, BUDGET_TOKENS = 100, 10, 256
ROUNDS = 3
TITLE = f"scoring, all orders of up to two of {NUM_CANDIDATES} candidates of up to {CHUNK_TOKENS} tokens"
COLUMNS = {
    "setting": "setting", "seconds": "seconds", "tokens_per_s": "tokens/s", "of_bare": "of bare",
    "largest_difference": "largest difference", "same": "same selections",
}  # fmt: skip


def bench_scoring(
    timing: Timing, *, questions: int = 2, model: str | None = None, small: bool = False
) -> list[dict[str, Any]]:
    """Measure a cross-encoder, by default a made one, and return the lines of the table.

    `questions` are scored in every way; `select_many` gets ten at once. `small` is a trial: three candidates, two
    questions at once.
    """
    num_candidates, queries = (3, 2) if small else (NUM_CANDIDATES, 10)
    asked = demo_questions(num_candidates, CHUNK_TOKENS)
    if len(asked) < max(questions, queries):
        raise InputError(f"the demo has {len(asked)} questions; ask for no more of them")
    with tempfile.TemporaryDirectory() as scratch:
        folder = model or str(save_cross_encoder(Path(scratch)))
        return [*_score_rows(folder, asked[:questions], timing), *_many_rows(folder, asked[:queries], timing)]


def _score_rows(folder: str, asked: list[OfferedQuestion], timing: Timing) -> list[dict[str, Any]]:
    where = place("reranker")
    reranker = corag.reranker("cross-encoder", model=folder)
    texts = [_joined(candidates) for _, candidates in asked]
    tokenizer = require("transformers", "models").AutoTokenizer.from_pretrained(folder, local_files_only=True)
    lengths = [
        len(ids)
        for (query, _), some in zip(asked, texts, strict=True)
        for ids in tokenizer([query] * len(some), some, truncation="only_second", max_length=512)["input_ids"]
    ]
    torch = require("torch", "models")
    with quiet():
        load = require("transformers", "models").AutoModelForSequenceClassification.from_pretrained
        module = load(folder, local_files_only=True).to(where.device).eval()
    batches = [
        {name: torch.from_numpy(values).to(where.device) for name, values in batch.items()}
        for batch in perfect_batches(lengths, where.batch_tokens)
    ]

    def ours() -> FloatArray:
        return np.concatenate([reranker.score(query, some) for (query, _), some in zip(asked, texts, strict=True)])

    runs: dict[str, Callable[[], Any]] = {"bare model, no padding": partial(run_batches, module, batches)}
    runs["cross-encoder"] = ours
    if importlib.util.find_spec("FlagEmbedding") is not None:
        runs["FlagReranker"] = _flag_embedding(folder, asked, texts, where.device)
    seconds, values = timing.run(runs)
    bare, *_ = runs
    tokens = {name: sum(b["input_ids"].numel() for b in batches) if name == bare else sum(lengths) for name in runs}
    speed = {name: tokens[name] / seconds[name] for name in runs}
    rows: list[dict[str, Any]] = []
    for name in runs:
        row = {"setting": name, "seconds": seconds[name], "tokens_per_s": round(speed[name])}
        if name != bare:
            row["of_bare"] = speed[name] / speed[bare]
            row["largest_difference"] = float(np.abs(values[name] - values["cross-encoder"]).max())
        rows.append(row)
    return rows


def _joined(candidates: Any) -> list[str]:
    """Return the texts of all orders of one or two candidates."""
    texts = [candidate.chunk.text for candidate in candidates]
    return [*texts, *(SEPARATOR.join(pair) for pair in permutations(texts, 2))]


def _flag_embedding(
    folder: str, asked: list[OfferedQuestion], texts: list[list[str]], device: str
) -> Callable[[], FloatArray]:
    """Return a run of FlagEmbedding's `FlagReranker` with its defaults: 128 pairs a batch, 512 tokens a pair."""
    flag = require("FlagEmbedding", "bge")
    with quiet():
        peer = flag.FlagReranker(folder, use_fp16=False, devices=device, batch_size=128, max_length=512)
    pairs = [(query, text) for (query, _), some in zip(asked, texts, strict=True) for text in some]
    return lambda: np.array(peer.compute_score(pairs, normalize=True))


def _many_rows(folder: str, asked: list[OfferedQuestion], timing: Timing) -> list[dict[str, Any]]:
    """Time `select_many` beside selecting for one question after the other."""
    selector = SELECTORS.make("corag", reranker=f"cross-encoder(model={folder})")
    queries, pools = [query for query, _ in asked], [pool for _, pool in asked]

    def one_by_one() -> list[tuple[str, ...]]:
        return [selector.select(query, pool, BUDGET_TOKENS).ids for query, pool in asked]

    def together() -> list[tuple[str, ...]]:
        return [selection.ids for selection in selector.select_many(queries, pools, BUDGET_TOKENS)]

    name = f"{len(asked)} questions"
    runs = {f"{name}, one by one": one_by_one, f"{name}, select_many": together}
    seconds, chosen = timing.run(runs)
    first, *_ = runs
    same = {run: sum(a == b for a, b in zip(chosen[run], chosen[first], strict=True)) for run in runs}
    return [{"setting": run, "seconds": seconds[run], "same": f"{same[run]} of {len(asked)}"} for run in runs]
