"""Parts that cost next to nothing and misbehave: rerankers, embedders, and nineteen ways to count tokens."""

import numpy as np

from corag.rerankers.scorers import JoinedTextScorer
from corag.text.documents import SEPARATOR
from corag.text.tokens import CallableCounter
from tests.corag.rerankers.test_window import Letters
from tests.corag.text.tokens.worlds import byte_level, made_encoding, unigram
from tests.fakes import COUNTERS as DOZEN
from tests.fakes import HashEmbedder, HashReranker, SetReranker, TableReranker


class Mean(HashReranker):
    """Values a text by its parts, so that no order is better than another and ties abound."""

    name = "mean"

    def score(self, query, texts):
        return np.array([np.mean([len(part) % 4 / 4 for part in text.split(SEPARATOR)]) for text in texts])

    def scorer(self, query, chunks):
        return JoinedTextScorer(self, query, chunks, order_matters=False)


class Lost(HashReranker):
    """Says of some texts that their value is no number."""

    name = "lost"

    def score(self, query, texts):
        values = super().score(query, texts)
        return np.where(values < 0.1, np.nan, values)


class LostEmbedder(HashEmbedder):
    """Gives some texts no direction, or vectors that are no numbers."""

    def embed(self, texts):
        vectors = super().embed(texts)
        vectors[vectors[:, 0] > 0.9] = np.nan
        vectors[vectors[:, 0] < -0.5] = 0
        return vectors


class Coarse(HashEmbedder):
    """Four directions, so that many texts are equal."""

    def __init__(self):
        super().__init__("coarse")

    def embed(self, texts):
        return np.array([np.eye(8)[len(text) % 4] for text in texts], dtype=np.float32).reshape(len(texts), 8)


RERANKERS = (
    HashReranker,
    SetReranker,
    lambda: TableReranker({}, default=0.5),
    Mean,
    lambda: "bm25",
    lambda: Letters(window=30),
)

COUNTERS = {
    counter.name: counter
    for counter in (
        *DOZEN,
        byte_level(),
        unigram(),
        CallableCounter(made_encoding().encode_ordinary, name="tiktoken/made"),
        CallableCounter(lambda text: 0, name="nothing"),
        CallableCounter(lambda text: len(text) * 10**9, name="huge"),
        CallableCounter(
            lambda text: len(f"<|user|>{text}<|end|>\n<|assistant|>".split("|")) + len(text), name="template"
        ),
    )
}
"""Counter by name; the first dozen are those of the other tests."""
