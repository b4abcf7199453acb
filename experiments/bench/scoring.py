"""Scoring by a cross-encoder: ours beside the bare model and FlagEmbedding.

Self-contained: all-MiniLM-L6-v2 with a random head as cross-encoder, and chunks of the demo corpus. The values are
meaningless, but they cost what those of a trained model of that size cost.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

import corag
from corag.models.engine import quiet
from corag.models.runtime import resolve_device
from corag.optional import require
from corag.text.documents import SEPARATOR
from corag.types import FloatArray
from experiments.bench.harness import CHUNK_TOKENS, TINY, PooledQuestion, Timing, pooled_questions, save_cross_encoder

if TYPE_CHECKING:
    from experiments.bench.run import BenchConfig

NUM_CANDIDATES, QUESTIONS = 10, 2
ROUNDS = 3
TITLE = f"scoring, all orders of up to two of {NUM_CANDIDATES} candidates of up to {CHUNK_TOKENS} tokens"
COLUMNS = {
    "setting": "setting", "seconds": "seconds", "tokens_per_s": "tokens/s", "of_bare": "of bare",
    "largest_difference": "largest difference",
}  # fmt: skip


def measure(config: BenchConfig, timing: Timing) -> list[dict[str, Any]]:
    """Measure a cross-encoder of MiniLM's size, or a tiny one, and return the rows of the table."""
    asked = pooled_questions(None, config.questions or QUESTIONS, 3 if config.small else NUM_CANDIDATES)
    with tempfile.TemporaryDirectory() as scratch:
        shape = TINY if config.small else {}
        return _rows(str(save_cross_encoder(Path(scratch), **shape)), asked, timing)


def _rows(folder: str, asked: list[PooledQuestion], timing: Timing) -> list[dict[str, Any]]:
    where = resolve_device("reranker")
    reranker = corag.reranker("cross-encoder", model=folder)
    pairs = [(query, text) for query, candidates in asked for text in _joined(candidates)]
    transformers = require("transformers", "models")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    encoded = tokenizer(*map(list, zip(*pairs, strict=True)), truncation="only_second", max_length=512)
    lengths = [len(ids) for ids in encoded["input_ids"]]
    with quiet():
        load = transformers.AutoModelForSequenceClassification.from_pretrained
        module = load(folder, local_files_only=True).to(where.device).eval()

    def ours() -> FloatArray:
        return np.concatenate([reranker.score(query, _joined(candidates)) for query, candidates in asked])

    bare = "bare model, no padding"
    batches = perfect_batches(lengths, where.batch_tokens, where.device)
    runs: dict[str, Callable[[], Any]] = {bare: partial(_run_batches, module, batches), "cross-encoder": ours}
    if importlib.util.find_spec("FlagEmbedding") is not None:
        # With its defaults: 128 pairs a batch, 512 tokens a pair.
        with quiet():
            flag = require("FlagEmbedding", "bge").FlagReranker(
                folder, use_fp16=False, devices=where.device, batch_size=128, max_length=512
            )
        runs["FlagReranker"] = lambda: np.array(flag.compute_score(pairs, normalize=True))
    seconds, values = timing.run(runs)
    tokens = {name: sum(batch.numel() for batch in batches) if name == bare else sum(lengths) for name in runs}
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


def perfect_batches(lengths: Sequence[int], max_batch_tokens: int, device: str = "cpu") -> list[Any]:
    """Return tensors of token ids with about the tokens of the given rows, in full batches of rows of one length.

    Rows go by length into batches as large as allowed, and each takes its batch's mean length, so that nothing is
    padded: what no packing of the real rows can beat.
    """
    torch = require("torch", "models")
    batches = []
    waiting = sorted(lengths, reverse=True)
    while waiting:
        size = max(1, max_batch_tokens // waiting[0])
        batch, waiting = waiting[:size], waiting[size:]
        batches.append(torch.randint(1000, 2000, (len(batch), round(fmean(batch))), device=device))
    return batches


def _run_batches(module: Any, batches: Sequence[Any]) -> None:
    torch = require("torch", "models")
    with torch.inference_mode():
        for batch in batches:
            module(input_ids=batch)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
