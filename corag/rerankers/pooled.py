"""`minilm-pooled`: a guess at the embedding of a joined text, made from token embeddings of its chunks.

    value(q, o) = cos(q, sum_i S_i / sqrt(n_i))

with q the embedding of the question, S_i the sum of the unit token embeddings of chunk i read by itself, and n_i their
number. Like the mean over tokens that embeds the joined text, the sum is diluted by every chunk that says something
else; the root, between one weight for each token (0) and one for each chunk (1), stands in for what reading the chunks
together does. It is made to rank orders before a slower reranker sees the promising ones. Token embeddings are
computed once per chunk and an order then costs microseconds. Late interaction: Khattab and Zaharia, "ColBERT", 2020.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag.models.cached import CachedTokenEmbeddings
from corag.models.minilm import DIMENSION, MAX_TOKENS, TextEncoder, minilm_encoder
from corag.models.runtime import Backend, Precision
from corag.naming import Part
from corag.rerankers.scorers import ChunkScorer, by_length
from corag.types import Chunk, FloatArray, Order


class MiniLMPooled(Part):
    """Cosine of the question and the pooled tokens of the chunks, in [0, 1]; their order does not matter to it.

    Args:
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`, as for the next.
        precision: `fp32`, `bf16` or `fp16`.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.
        cache_mb: Megabytes of token embeddings that are kept for later queries (about 200 KB a chunk), 0 keeps none; by
            default what `corag.runtime` lets all parts keep together.
        encoder: Used in place of the encoder that backend and precision select.

    Attributes:
        max_tokens: The window *of one chunk*; combinations are never cut.
    """

    max_tokens = MAX_TOKENS

    def __init__(
        self,
        *,
        backend: Backend = "auto",
        precision: Precision | None = None,
        device: str | None = None,
        cache_mb: float | None = None,
        encoder: TextEncoder | None = None,
    ) -> None:
        self.name = "minilm-pooled"
        self._encoder: TextEncoder = encoder or minilm_encoder(backend, precision, device, role="reranker")
        self._embeddings = CachedTokenEmbeddings(self._encoder, cache_mb)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        return self._scorer(query, texts)([(row,) for row in range(len(texts))])

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> PooledScorer:
        """Return a scoring function over the pooled tokens of each chunk, computed here once."""
        return self._scorer(query, [chunk.text for chunk in chunks])

    def _scorer(self, query: str, texts: Sequence[str]) -> PooledScorer:
        states, truncated = self._embeddings(texts)
        pooled = np.zeros((len(texts), DIMENSION))
        for row, vectors in enumerate(states):
            if len(vectors):
                pooled[row] = vectors.sum(axis=0, dtype=np.float64) / np.sqrt(len(vectors))
        vector = self._encoder.sentence_embeddings(self._encoder.tokenize([query]).ids)[0].astype(np.float64)
        return PooledScorer(pooled @ vector, pooled @ pooled.T, truncated)


class PooledScorer(ChunkScorer):
    """Cosines of sums of vectors, from products of the chunks' vectors with the question, `[n]`, and `among` them."""

    order_matters = False

    def __init__(self, with_query: FloatArray, among: FloatArray, truncated: NDArray[np.bool_]) -> None:
        super().__init__(truncated)
        self._with_query, self._among = with_query, among

    def _values(self, orders: Sequence[Order]) -> FloatArray:
        values = np.zeros(len(orders))
        for rows, chunks in by_length(orders):
            # Ascending, so that rounding is the same for every order of the same chunks.
            chosen = np.sort(chunks, axis=1)
            squared = self._among[chosen[:, :, None], chosen[:, None, :]].sum(axis=(1, 2))
            # Chunks without tokens have no length; rounding may leave a little less than none.
            norms = np.sqrt(np.maximum(squared, 1e-24))
            values[rows] = self._with_query[chosen].sum(axis=1) / norms
        return np.clip(values, 0.0, 1.0)
