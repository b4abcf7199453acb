"""`minilm-maxsim` and `minilm-softsim`: late interaction over the token embeddings of all-MiniLM-L6-v2.

For every token of the question, the best cosine among the tokens of the chosen chunks, averaged over the
question (Khattab and Zaharia, "ColBERT", 2020, eq. 3, with a mean in place of the sum so that values of one chunk are
in [0, 1]). Token embeddings are computed once per chunk; an order then costs a few operations on a few rows.

In a combination `minilm-maxsim` takes the maximum over its chunks, so that all chunks beyond the first few are worth
nothing, or what they add to words that mean little: at larger budgets a search for the best value leaves out evidence.
`minilm-softsim` takes a norm of the chunks' cosines with the question token instead, a soft maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import search
from corag.errors import InputError
from corag.models.engine.backends import Backend, Precision
from corag.models.minilm import MAX_TOKENS, TextEncoder, minilm_encoder
from corag.rerankers.token_states import TokenStates
from corag.types import Chunk, FloatArray, Order

SOFT = 8.0
"""Order of the norm of `minilm-softsim`. Chosen on training questions of HotpotQA and MuSiQue; anything from 4 to 12
does about as well there."""


class MiniLMMaxSim:
    """Late-interaction value, of one chunk in [0, 1]; the order of chunks does not matter to it.

    Args:
        sharpness: Order of the norm that pools the chunks of a combination, at least 1; infinity, the default, is their
            maximum.
        backend: `auto`, `openvino` or `torch`; see `corag.models.engine.backends`.
        precision: `fp32` or `bf16`.
        cache_chunks: Chunks whose token embeddings are kept for later queries (about 150 KB each).
        encoder: Stands for the encoder of backend and precision.

    Attributes:
        max_tokens: The window *of one chunk*; combinations are never cut.

    Raises:
        InputError: A setting does not exist, or not on this machine.
    """

    name = "minilm-maxsim"
    max_tokens = MAX_TOKENS

    def __init__(
        self,
        *,
        sharpness: float = math.inf,
        backend: Backend = "auto",
        precision: Precision = "fp32",
        cache_chunks: int = 2048,
        encoder: TextEncoder | None = None,
    ) -> None:
        if not sharpness >= 1:
            raise InputError(f"sharpness must be at least 1, got {sharpness!r}; 4 to 12 are usual, inf is the maximum")
        self.sharpness = sharpness
        self._states = TokenStates(encoder or minilm_encoder(backend, precision), cache_chunks)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        maxima, _ = self.token_maxima(query, texts)
        values: FloatArray = maxima.mean(axis=1)
        return values

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> MaxSimScorer:
        """Return a scoring function over the maxima of each chunk, computed here once."""
        return MaxSimScorer(*self.token_maxima(query, [chunk.text for chunk in chunks]), self.sharpness)

    def token_maxima(self, query: str, texts: Sequence[str]) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the best cosine of each question token in each text, and which texts were cut.

        Returns:
            `[len(texts), question tokens]` in [0, 1] (0 for an empty text), and `[len(texts)]`.
        """
        query_tokens = self._states.of_query(query)
        states, truncated = self._states.of_texts(texts)
        maxima = np.zeros((len(texts), max(1, len(query_tokens))), dtype=np.float64)
        for row, vectors in enumerate(states):
            if len(vectors) and len(query_tokens):
                maxima[row] = np.clip((vectors @ query_tokens.T).max(axis=0), 0.0, 1.0)
        return maxima, truncated


class MiniLMSoftSim(MiniLMMaxSim):
    """`minilm-maxsim` with a soft maximum over the chunks of a combination; values of one chunk are the same.

    Args:
        sharpness: Order of the norm that pools the chunks of a combination, at least 1; infinity is their maximum.
        backend: See `MiniLMMaxSim`.
        precision: See `MiniLMMaxSim`.
        cache_chunks: See `MiniLMMaxSim`.
        encoder: See `MiniLMMaxSim`.

    Attributes:
        search_policy: How `corag` searches with it by default. Values that take microseconds are sooner computed than
            foretold by a model of them, which, moreover, can miss a chunk that fits beside no other.
    """

    name = "minilm-softsim"
    search_policy: search.Policy = "beam"

    def __init__(
        self,
        *,
        sharpness: float = SOFT,
        backend: Backend = "auto",
        precision: Precision = "fp32",
        cache_chunks: int = 2048,
        encoder: TextEncoder | None = None,
    ) -> None:
        super().__init__(
            sharpness=sharpness, backend=backend, precision=precision, cache_chunks=cache_chunks, encoder=encoder
        )


class MaxSimScorer:
    """Late interaction over precomputed maxima.

    Args:
        maxima: Best cosine of each question token in each chunk, `[chunks, question tokens]`.
        truncated: Which chunks did not fit the window, `[chunks]`.
        sharpness: See `MiniLMMaxSim`.

    Attributes:
        num_truncated: Distinct orders so far that hold such a chunk.
    """

    order_matters = False

    def __init__(self, maxima: FloatArray, truncated: NDArray[np.bool_], sharpness: float = math.inf) -> None:
        self._maxima = maxima
        self._sharpness = sharpness
        self._cut_chunks = set(np.flatnonzero(truncated).tolist())
        self._truncated: set[Order] = set()
        self.num_truncated = 0

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        self._truncated.update(order for order in orders if self._cut_chunks.intersection(order))
        self.num_truncated = len(self._truncated)
        values = np.empty(len(orders), dtype=np.float64)
        lengths = np.array([len(order) for order in orders])
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length).tolist()
            # In one order, so that rounding does not tell permutations apart.
            chosen = np.sort([orders[row] for row in rows], axis=1)
            values[rows] = self._pooled(self._maxima[chosen]).mean(axis=1)
        return values

    def _pooled(self, maxima: FloatArray) -> FloatArray:
        """Return the norm over chunks, `[orders, question tokens]`, given `[orders, chunks, question tokens]`."""
        largest: FloatArray = maxima.max(axis=1)
        if np.isinf(self._sharpness) or maxima.shape[1] == 1:
            return largest
        # Relative to the largest, so that no power is too small for a float.
        shares = maxima / np.where(largest > 0, largest, 1.0)[:, None]
        sums: FloatArray = (shares**self._sharpness).sum(axis=1)
        return np.asarray(largest * sums ** (1 / self._sharpness))
