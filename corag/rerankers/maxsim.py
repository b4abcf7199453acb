"""`minilm-maxsim`: late interaction over the token embeddings of all-MiniLM-L6-v2.

For every token of the question, the best cosine among the tokens of the chosen chunks, averaged over the
question (Khattab and Zaharia, "ColBERT", 2020, eq. 3, with a mean in place of the sum so that values are in
[0, 1]). Token embeddings are computed once per chunk; an order then costs a maximum over a few rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corag.minilm import MAX_TOKENS, Backend, MiniLMEncoder, minilm_encoder
from corag.rerankers.cache import BoundedCache
from corag.types import Chunk, FloatArray, Order


class MiniLMMaxSim:
    """Late-interaction value in [0, 1]; the order of chunks does not matter to it.

    Args:
        backend: `auto`, `openvino` or `torch`; see `corag.minilm`.
        cache_chunks: Chunks whose token embeddings are kept for later queries (about 150 KB each).

    Attributes:
        max_tokens: The window *of one chunk*; combinations are never cut.
    """

    max_tokens = MAX_TOKENS

    def __init__(self, *, backend: Backend = "auto", cache_chunks: int = 2048) -> None:
        self.name = "minilm-maxsim"
        self._encoder: MiniLMEncoder = minilm_encoder(backend)
        self._cache: BoundedCache[str, FloatArray] = BoundedCache(cache_chunks)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        matrix, _ = self.token_maxima(query, texts)
        return matrix.mean(axis=1)

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> MaxSimScorer:
        """Return a scoring function over the maxima of each chunk, computed here once."""
        matrix, num_truncated = self.token_maxima(query, [chunk.text for chunk in chunks])
        return MaxSimScorer(matrix, num_truncated)

    def token_maxima(self, query: str, texts: Sequence[str]) -> tuple[FloatArray, int]:
        """Return the best cosine of each question token in each text, and how many texts were cut.

        Returns:
            `[len(texts), question tokens]` in [0, 1] (0 for an empty text), and a count.
        """
        query_tokens = self._encoder.token_embeddings(self._encoder.tokenize([query]).ids)[0]
        tokens = self._encoder.tokenize(texts)
        unseen = [row for row, text in enumerate(texts) if text not in self._cache]
        embedded = self._encoder.token_embeddings([tokens.ids[row] for row in unseen])
        fresh = {texts[row]: states for row, states in zip(unseen, embedded, strict=True)}
        maxima = np.zeros((len(texts), max(1, len(query_tokens))), dtype=np.float64)
        for row, text in enumerate(texts):
            states = fresh[text] if text in fresh else self._cache[text]
            if len(states) and len(query_tokens):
                maxima[row] = np.clip((states @ query_tokens.T).max(axis=0), 0.0, 1.0)
        for text, states in fresh.items():
            self._cache[text] = states
        return maxima, int(tokens.truncated.sum())


class MaxSimScorer:
    """Late interaction over precomputed maxima.

    Args:
        maxima: Best cosine of each question token in each chunk, `[chunks, question tokens]`.
        num_truncated: Chunks that did not fit the window.
    """

    order_matters = False

    def __init__(self, maxima: FloatArray, num_truncated: int = 0) -> None:
        self._maxima = maxima
        self.num_truncated = num_truncated

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        values = np.empty(len(orders), dtype=np.float64)
        lengths = np.array([len(order) for order in orders])
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            chosen = np.array([orders[row] for row in rows])
            values[rows] = self._maxima[chosen].max(axis=1).mean(axis=1)
        return values
