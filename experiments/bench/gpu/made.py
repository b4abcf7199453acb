"""What is measured with: questions and passages, made or from a data folder, and a cross-encoder of random weights."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corag.models.engine.engine import quiet
from corag.optional import require
from corag.text.data import DataFolder, Query
from corag.text.documents import passage
from corag.text.tokens import load_tokenizer, model_folder
from corag.types import Candidate, Chunk

SEED = 0


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        questions: Questions that are labelled.
        candidates: Candidates of each.
        words: Fewest and most words of a made passage.
        searched: Questions that are searched by each policy with each reranker, after one that warms up.
        max_scored: Orders that such a search may ask for.
        texts: Texts that are run for the tokens a second.
        compared: Questions whose values are compared with the CPU's; a reranker head learns from six times as many.
        layers: Layers of the cross-encoder; the others are its width, its feed-forward width and its heads.
        rows: Questions that the agent learns from.
        epochs: Epochs of the agent and of the reranker head.
        seconds: For each timed setting.
    """

    questions: int = 200
    candidates: int = 20
    words: tuple[int, int] = (40, 120)
    searched: int = 5
    max_scored: int = 100
    texts: int = 2000
    compared: int = 10
    layers: int = 12
    width: int = 768
    rows: int = 4000
    epochs: int = 30
    seconds: float = 3.0


FULL = Size()
SMALL = Size(
    questions=2, candidates=4, words=(12, 16), searched=1, max_scored=8, texts=6, compared=1, layers=2, width=32,
    rows=100, epochs=1, seconds=0.0,
)  # fmt: skip


@dataclass(frozen=True)
class World:
    """Questions with their candidates, and the folder of the cross-encoder."""

    queries: Sequence[Query]
    pools: Sequence[Sequence[Candidate]]
    cross_encoder: Path
    size: Size

    @property
    def texts(self) -> list[str]:
        """Texts of all candidates, each once, again and again as far as they are needed."""
        distinct = list(dict.fromkeys(candidate.chunk.text for pool in self.pools for candidate in pool))
        return (distinct * -(-self.size.texts // len(distinct)))[: self.size.texts]


@contextmanager
def made_world(size: Size, data: str | None, scratch: Path) -> Iterator[World]:
    """Yield what is measured with; `data` is a data folder whose questions have candidates."""
    queries, pools = _made(size) if data is None else _read(size, data)
    yield World(queries, pools, make_cross_encoder(scratch / "cross-encoder", size), size)


def _made(size: Size) -> tuple[list[Query], list[list[Candidate]]]:
    """Return questions that name words of their evidence."""
    rng = np.random.default_rng(SEED)
    known = sorted(load_tokenizer(model_folder() / "tokenizer.json").get_vocab())
    words = np.array([word for word in known if word.isascii() and word.isalpha() and len(word) > 3])
    chances = 1 / (np.arange(len(words)) + 20.0)
    queries, pools = [], []
    for number in range(max(size.questions, size.compared)):
        texts = [
            rng.choice(words, rng.integers(*size.words), p=chances / chances.sum()) for _ in range(size.candidates)
        ]
        chunks = [
            Chunk(f"q{number}-{place}", f"{' '.join(text[:2]).title()}\n{_sentences(text)}")
            for place, text in enumerate(texts)
        ]
        gold = rng.choice(size.candidates, 2, replace=False).tolist()
        asked = " ".join(" ".join(texts[place][5:9]) for place in gold)
        answer = str(texts[gold[0]][10])
        ids = tuple(chunks[place].id for place in gold)
        asked_for = f"What of {asked}?"
        names = tuple(chunk.id for chunk in chunks)
        queries.append(Query(f"q{number}", asked_for, (answer,), ids, "train", names, {}))
        pools.append([Candidate(chunk, 1 - place / size.candidates) for place, chunk in enumerate(chunks)])
    return queries, pools


def _sentences(words: NDArray[np.str_]) -> str:
    return " ".join(" ".join(words[start : start + 12]).capitalize() + "." for start in range(0, len(words), 12))


def _read(size: Size, data: str) -> tuple[list[Query], list[list[Candidate]]]:
    folder = DataFolder.open(data)
    asked = [query for query in folder.queries if query.candidates]
    queries = asked[: max(size.questions, size.compared)]
    pools = [
        [
            Candidate(passage(folder.documents[name]), 1 - place / size.candidates)
            for place, name in enumerate((query.candidates or ())[: size.candidates])
        ]
        for query in queries
    ]
    return queries, pools


def make_cross_encoder(folder: Path, size: Size) -> Path:
    """Save a BERT cross-encoder with random weights and MiniLM's tokenizer."""
    torch, transformers = require("torch", "models"), require("transformers", "models")
    source = model_folder()
    settings = transformers.BertConfig.from_pretrained(
        source,
        num_labels=1,
        num_hidden_layers=size.layers,
        hidden_size=size.width,
        intermediate_size=4 * size.width,
        num_attention_heads=max(1, size.width // 64),
        # Wider than usual, so that values of different texts differ.
        initializer_range=0.05,
        local_files_only=True,
    )
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(SEED)
        transformers.BertForSequenceClassification(settings).save_pretrained(folder)
    for file in source.glob("tokenizer*.json"):
        shutil.copy(file, folder / file.name)
    return folder
