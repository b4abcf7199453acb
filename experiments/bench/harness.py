"""What benchmarks share: interleaved timings, questions with candidates, and a cross-encoder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Literal, TypeVar

from corag.ambient import counted
from corag.errors import DataError
from corag.models.engine import quiet
from corag.optional import require
from corag.registry import tokens as make_tokens
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.data import DataFolder
from corag.text.documents import Document, passage
from corag.text.tokens import model_folder
from corag.types import Candidate
from experiments import demo
from experiments.data.config import comma_separated

T = TypeVar("T")
Clock = Literal["wall", "cpu"]
CLOCKS: Mapping[Clock, Callable[[], float]] = {"wall": perf_counter, "cpu": process_time}
"""`cpu` adds up the seconds of all threads of this process: other programs on the machine distort it less."""

CHUNK_TOKENS = 128
"""Tokens of a chunk of the demo."""
TINY = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 1}
"""Shape of a cross-encoder to try a benchmark out with."""

PooledQuestion = tuple[str, Sequence[Candidate]]
"""A question with its candidates."""


@dataclass(frozen=True)
class Timing:
    """How settings are timed: runs of each, whose median counts, and the clock."""

    rounds: int
    now: Callable[[], float] = perf_counter

    def run(self, runs: Mapping[str, Callable[[], T]]) -> tuple[dict[str, float], dict[str, T]]:
        """Return the median seconds of each setting, and what its last run returned.

        Every round runs all settings in turn, so that a slow moment of the machine affects them alike.
        """
        times: dict[str, list[float]] = {name: [] for name in runs}
        results: dict[str, T] = {}
        for _ in counted("rounds", range(self.rounds)):
            for name, run in runs.items():
                started = self.now()
                results[name] = run()
                times[name].append(self.now() - started)
        return {name: median(values) for name, values in times.items()}, results


def pooled_questions(data: str | None, number: int, num_candidates: int | None = None) -> list[PooledQuestion]:
    """Return questions with their candidates: of the demo, or of data folders, by path or name, taken in turn.

    Candidates are the first `num_candidates`, by default 20 of the demo, from the start of the evidence's topic, and
    all of a folder's question. `DataError` if no question has candidates.
    """
    if not data:
        return _demo_questions(num_candidates or 20)[:number]
    each = []
    for folder in map(DataFolder.open, comma_separated(data)):
        asked = [(query.question, query.candidates[:num_candidates]) for query in folder.queries if query.candidates]
        pooled = [
            (text, [Candidate(passage(folder.documents[name])) for name in names]) for text, names in asked[:number]
        ]
        each.append(pooled)
    questions = list(islice(filter(None, chain.from_iterable(zip_longest(*each))), number))
    if not questions:
        raise DataError(f"no question of {data} has a list of candidates; give a folder whose questions have")
    return questions


def _demo_questions(num_candidates: int) -> list[PooledQuestion]:
    content, counter = demo.load(), make_tokens()
    documents = [Document(row["id"], row["text"], row["title"]) for row in content.documents]
    chunks = [chunk for one in documents for chunk in chunk_document(one, counter, ChunkConfig(CHUNK_TOKENS))]
    starts: dict[str, int] = {}
    for row, chunk in enumerate(chunks):
        starts.setdefault(chunk.metadata["document"], row)
    pools = [(chunks + chunks)[starts[query["topics"][0]] :][:num_candidates] for query in content.queries]
    return [
        (query["question"], [Candidate(chunk, 1 / rank) for rank, chunk in enumerate(pool, 1)])
        for query, pool in zip(content.queries, pools, strict=True)
    ]


def save_cross_encoder(folder: Path, **shape: int) -> Path:
    """Save a random BERT cross-encoder with MiniLM's tokenizer, in the layout of a hub checkpoint.

    `shape` are fields of `transformers.BertConfig`.
    """
    torch, transformers = require("torch", "models"), require("transformers", "models")
    source = model_folder()
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        # Initialised wider than by default, so that values of different texts differ.
        wider = {"initializer_range": 0.05, "num_labels": 1, "local_files_only": True}
        config = transformers.BertConfig.from_pretrained(source, **wider, **shape)
        transformers.BertForSequenceClassification(config).save_pretrained(folder)
    for file in source.glob("tokenizer*.json"):
        shutil.copy(file, folder / file.name)
    return folder
