"""`minilm-cosine`: the cosine of question and joined text, both embedded by all-MiniLM-L6-v2.

The joined text is embedded as a whole, so chunks influence each other and order matters (a little). It is
the value a bi-encoder retriever would give the finished prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag.engine.backends import Backend, Precision
from corag.minilm import MAX_TOKENS, WEIGHTS_SHA256, minilm_encoder
from corag.types import Chunk, FloatArray, Order


class MiniLMCosine:
    """Cosine similarity in [0, 1]; negative cosines, which mean unrelated as 0 does, count as 0.

    Args:
        backend: `auto`, `openvino` or `torch`; see `corag.engine.backends`.
        precision: `fp32` or `bf16`.

    Attributes:
        max_tokens: The window; what is longer is cut at the end, and counted.
        identity: What values depend on besides question and texts; see `corag.rerankers.stored`.
    """

    max_tokens = MAX_TOKENS

    def __init__(self, *, backend: Backend = "auto", precision: Precision = "fp32") -> None:
        self.name = "minilm-cosine"
        self.encoder = minilm_encoder(backend, precision)
        self.identity = f"{self.name} {WEIGHTS_SHA256} {self.encoder.backend} {precision}"

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        ids = self.encoder.tokenize(texts).ids
        return _cosines(self.query_vector(query), self.encoder.sentence_embeddings(ids), ids)

    def query_vector(self, query: str) -> FloatArray:
        """Return the embedding of a question, `[384]`."""
        vector: FloatArray = self.encoder.sentence_embeddings(self.encoder.tokenize([query]).ids)[0].astype(float)
        return vector

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> CosineScorer:
        """Return a scoring function that tokenises each chunk once."""
        return CosineScorer(self, query, chunks)


class CosineScorer:
    """Joins the token ids of chunks, which for this tokenizer equals tokenising the joined text.

    Attributes:
        truncated_orders: Orders so far that did not fit the window.
    """

    order_matters = True

    def __init__(self, reranker: MiniLMCosine, query: str, chunks: Sequence[Chunk]) -> None:
        self._encoder = reranker.encoder
        self._query = reranker.query_vector(query)
        self._tokens = self._encoder.tokenize([chunk.text for chunk in chunks])
        self.truncated_orders: set[Order] = set()

    @property
    def num_truncated(self) -> int:
        """Distinct orders so far that did not fit the window."""
        return len(self.truncated_orders)

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        return self.score_jointly([(self, orders)])[0]

    @staticmethod
    def score_jointly(requests: Sequence[tuple[CosineScorer, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of each scorer's orders, embedded in shared batches."""
        joined = [[scorer._joined(order) for order in orders] for scorer, orders in requests]
        encoder = requests[0][0]._encoder
        vectors = encoder.sentence_embeddings([ids for rows in joined for ids in rows])
        ends = np.cumsum([len(rows) for rows in joined])
        return [
            _cosines(scorer._query, of_scorer, rows)
            for (scorer, _), of_scorer, rows in zip(requests, np.split(vectors, ends[:-1]), joined, strict=True)
        ]

    def _joined(self, order: Order) -> NDArray[np.int64]:
        """Return the token ids of an order's joined text, cut to the window, and count it if it was cut."""
        ids = np.concatenate([self._tokens.ids[i] for i in order])
        if len(ids) > MAX_TOKENS or self._tokens.truncated[list(order)].any():
            self.truncated_orders.add(order)
        return ids[:MAX_TOKENS]


def _cosines(query: FloatArray, vectors: NDArray[np.float32], ids: Sequence[NDArray[np.int64]]) -> FloatArray:
    """Return the value of each text `[n]`, given its vector `[n, 384]` and token ids, for a query vector `[384]`."""
    cosines = vectors.astype(np.float64) @ query
    # The vector of a text without tokens is that of the special tokens alone, which is near many questions.
    cosines[[len(row) == 0 for row in ids]] = 0.0
    return np.clip(cosines, 0.0, 1.0)
