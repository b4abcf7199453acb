"""`minilm-softsim`: late interaction over token embeddings of all-MiniLM-L6-v2.

For every token of the question, the best cosine among the tokens of the chosen chunks, averaged over the
question (Khattab and Zaharia, "ColBERT", 2020, eq. 3, with a mean in place of the sum so that values of one chunk are
in [0, 1]). Token embeddings are computed once per chunk; an order then costs a few operations on a few rows.

A maximum over all chunks saturates: those beyond the first few add almost nothing, and at larger budgets a search for
the best value leaves out evidence. So the chunks' cosines with a question token are pooled by a norm, a soft maximum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError
from corag.models.cached import CachedEncoder
from corag.models.minilm import MAX_TOKENS, TextEncoder, minilm_encoder
from corag.models.runtime import Backend, Precision
from corag.naming import Part
from corag.rerankers.scorers import ChunkScorer, by_length
from corag.types import Chunk, FloatArray, Order

SOFT = 8.0
"""Default order of the norm, chosen on training questions of HotpotQA and MuSiQue; 4 to 12 do about as well there."""


class MiniLMSoftSim(Part):
    """Late interaction over token embeddings, in [0, 1] for one chunk; order does not matter, and nothing is cut.

    Args:
        sharpness: Order of the norm that pools the chunks of a combination, at least 1. Infinity is their maximum.
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`, as for the next.
        precision: `fp32`, `bf16` or `fp16`.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.
        encoder: Used in place of the encoder that backend and precision select.
    """

    name = "minilm-softsim"
    max_tokens = MAX_TOKENS

    def __init__(
        self,
        *,
        sharpness: float = SOFT,
        backend: Backend = "auto",
        precision: Precision | None = None,
        device: str | None = None,
        encoder: TextEncoder | None = None,
    ) -> None:
        if not sharpness >= 1:
            raise InputError(f"sharpness must be at least 1, got {sharpness!r}; typical: 4-12")
        self.sharpness = sharpness
        self._encoder = encoder or CachedEncoder(minilm_encoder(backend, precision, device, role="reranker"))

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        maxima, _ = self.token_maxima(query, texts)
        return np.asarray(maxima.mean(axis=1))

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> SoftSimScorer:
        """Return a scoring function over the maxima of each chunk, computed here once."""
        return SoftSimScorer(*self.token_maxima(query, [chunk.text for chunk in chunks]), self.sharpness)

    def token_maxima(self, query: str, texts: Sequence[str]) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the best cosine of each question token in each text, and which texts were cut, `[len(texts)]`.

        The cosines, `[len(texts), question tokens]`, are in [0, 1]; 0 for an empty text.
        """
        encoded = self._encoder.encoded(texts)
        [question] = self._encoder.encoded([query])
        maxima = np.zeros((len(texts), max(1, len(question.ids))), dtype=np.float64)
        for row, of_text in enumerate(encoded):
            if len(of_text.ids) and len(question.ids):
                maxima[row] = np.clip(question.cosines(of_text).max(axis=0), 0.0, 1.0)
        return maxima, np.array([of_text.num_windows > 1 for of_text in encoded], dtype=bool)


class SoftSimScorer(ChunkScorer):
    """Late interaction over the best cosine of each question token in each chunk, `[chunks, question tokens]`."""

    order_matters = False

    def __init__(self, maxima: FloatArray, truncated: NDArray[np.bool_], sharpness: float) -> None:
        super().__init__(truncated)
        self._maxima = maxima
        self._sharpness = sharpness

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        self.count_truncated(orders)
        values = np.empty(len(orders), dtype=np.float64)
        for rows, chunks in by_length(orders):
            # Ascending, so that rounding is the same for every order of the same chunks.
            values[rows] = self._pooled(self._maxima[np.sort(chunks, axis=1)]).mean(axis=1)
        return values

    def _pooled(self, maxima: FloatArray) -> FloatArray:
        """Return the norm over chunks, `[orders, question tokens]`, given `[orders, chunks, question tokens]`."""
        largest: FloatArray = maxima.max(axis=1)
        if maxima.shape[1] == 1:
            return largest
        # Relative to the largest, so that no power is too small for a float.
        shares = maxima / np.where(largest > 0, largest, 1.0)[:, None]
        sums: FloatArray = (shares**self._sharpness).sum(axis=1)
        return np.asarray(largest * sums ** (1 / self._sharpness))
