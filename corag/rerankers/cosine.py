"""`minilm-cosine`: the cosine of question and joined text, both embedded by all-MiniLM-L6-v2.

The joined text is embedded as a whole, so chunks influence each other and order matters (a little). It is
the value a bi-encoder retriever would give the finished prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corag.minilm import MAX_TOKENS, Backend, minilm_encoder
from corag.types import Chunk, FloatArray, Order


class MiniLMCosine:
    """Cosine similarity in [0, 1]; negative cosines, which mean unrelated as 0 does, count as 0.

    Args:
        backend: `auto`, `openvino` or `torch`; see `corag.minilm`.

    Attributes:
        max_tokens: The window; what is longer is cut at the end, and counted.
    """

    max_tokens = MAX_TOKENS

    def __init__(self, *, backend: Backend = "auto") -> None:
        self.name = "minilm-cosine"
        self.encoder = minilm_encoder(backend)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        tokens = self.encoder.tokenize([query, *texts])
        vectors = self.encoder.sentence_embeddings(tokens.ids)
        return _cosines(vectors[0], vectors[1:])

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> CosineScorer:
        """Return a scoring function that tokenises each chunk once."""
        return CosineScorer(self, query, chunks)


class CosineScorer:
    """Joins the token ids of chunks, which for this tokenizer equals tokenising the joined text."""

    order_matters = True

    def __init__(self, reranker: MiniLMCosine, query: str, chunks: Sequence[Chunk]) -> None:
        self._encoder = reranker.encoder
        self._query = self._encoder.sentence_embeddings(self._encoder.tokenize([query]).ids)[0]
        self._tokens = self._encoder.tokenize([chunk.text for chunk in chunks])
        self.num_truncated = 0

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        joined = [np.concatenate([self._tokens.ids[i] for i in order]) for order in orders]
        self.num_truncated += sum(
            len(ids) > MAX_TOKENS or bool(self._tokens.truncated[list(order)].any())
            for ids, order in zip(joined, orders, strict=True)
        )
        return _cosines(self._query, self._encoder.sentence_embeddings([ids[:MAX_TOKENS] for ids in joined]))


def _cosines(query: FloatArray, vectors: FloatArray) -> FloatArray:
    return np.clip(vectors.astype(np.float64) @ query.astype(np.float64), 0.0, 1.0)
