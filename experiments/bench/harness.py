"""What benchmarks share: interleaved timings, questions of the demo, a cross-encoder, and batches without padding."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from time import perf_counter, process_time
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from corag.models.engine import quiet
from corag.optional import require
from corag.progress import counted
from corag.registry import tokens as make_tokens
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.documents import Document
from corag.text.tokens import model_folder
from corag.types import Candidate
from experiments import demo

T = TypeVar("T")
Clock = Literal["wall", "cpu"]
CLOCKS: Mapping[Clock, Callable[[], float]] = {"wall": perf_counter, "cpu": process_time}
"""`cpu` adds up the seconds of all threads of this process: other programs on the machine distort it less."""

OfferedQuestion = tuple[str, Sequence[Candidate]]
"""A question with its candidates."""


@dataclass(frozen=True)
class Timing:
    """How settings are timed: runs of each, whose median counts, and a clock of `CLOCKS`."""

    rounds: int
    clock: Clock = "wall"

    @property
    def now(self) -> Callable[[], float]:
        """The clock."""
        return CLOCKS[self.clock]

    def run(self, runs: Mapping[str, Callable[[], T]]) -> tuple[dict[str, float], dict[str, T]]:
        """Return the median seconds of each setting, and what its last run returned.

        Every round runs all settings in turn, so that a slow moment of the machine affects them alike.
        """
        now = self.now
        times: dict[str, list[float]] = {name: [] for name in runs}
        results: dict[str, T] = {}
        for _ in counted("rounds", range(self.rounds)):
            for name, run in runs.items():
                started = now()
                results[name] = run()
                times[name].append(now() - started)
        return {name: median(values) for name, values in times.items()}, results


def demo_questions(num_candidates: int, chunk_tokens: int) -> list[OfferedQuestion]:
    """Return the demo's questions; the candidates of each are the chunks from the start of its evidence's topic on."""
    content, counter = demo.load(), make_tokens()
    documents = [Document(row["id"], row["text"], row["title"]) for row in content.documents]
    chunks = [chunk for one in documents for chunk in chunk_document(one, counter, ChunkConfig(chunk_tokens))]
    starts: dict[str, int] = {}
    for row, chunk in enumerate(chunks):
        starts.setdefault(chunk.metadata["document"], row)
    pools = [(chunks + chunks)[starts[query["topics"][0]] :][:num_candidates] for query in content.queries]
    return [
        (query["question"], [Candidate(chunk, 1 / rank) for rank, chunk in enumerate(pool, 1)])
        for query, pool in zip(content.queries, pools, strict=True)
    ]


def save_cross_encoder(folder: Path, **shape: int) -> Path:
    """Save a BERT cross-encoder with MiniLM's tokenizer, in the layout of a hub checkpoint; its head is random.

    Args:
        folder: Where to save it.
        shape: Fields of `transformers.BertConfig`. With any, all weights are random; without, those of MiniLM stay.
    """
    torch, transformers = require("torch", "models"), require("transformers", "models")
    source = model_folder()
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        settings = {"num_labels": 1, "local_files_only": True}
        if shape:
            # Initialised wider than usual, so that values of different texts differ.
            config = transformers.BertConfig.from_pretrained(source, initializer_range=0.05, **shape, **settings)
            model = transformers.BertForSequenceClassification(config)
        else:
            model = transformers.BertForSequenceClassification.from_pretrained(source, **settings)
        model.save_pretrained(folder)
    for file in source.glob("tokenizer*.json"):
        shutil.copy(file, folder / file.name)
    return folder


def perfect_batches(lengths: Sequence[int], max_batch_tokens: int) -> list[dict[str, NDArray[np.int64]]]:
    """Return inputs with about the tokens of the given rows, in full batches of rows of one length.

    Rows go by length into batches as large as allowed, and each takes its batch's mean length, so that nothing is
    padded: what no packing of the real rows can beat.
    """
    rng = np.random.default_rng(0)
    batches: list[dict[str, NDArray[np.int64]]] = []
    waiting = sorted(lengths, reverse=True)
    while waiting:
        size = max(1, max_batch_tokens // waiting[0])
        batch, waiting = waiting[:size], waiting[size:]
        ids = rng.integers(1000, 2000, (len(batch), round(fmean(batch))))
        batches.append({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    return batches


def run_batches(module: Any, batches: Sequence[Mapping[str, Any]]) -> None:
    """Run a PyTorch module on batches of tensors, and wait until it is done."""
    torch = require("torch", "models")
    with torch.inference_mode():
        for batch in batches:
            module(**batch)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
