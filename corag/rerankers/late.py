"""`minilm-late`: late interaction in which a passage is encoded once.

As in ColBERT (Khattab and Zaharia, 2020, eq. 3), a question token is worth its best cosine among the tokens of a text.
A sentence is valued by its tokens in the encoding of its passage, where what its pronouns stand for is known, and
partly by the passage itself, so that of two equal sentences the one from the better passage wins.

A combination is worth what its chunks cover of the question together: for each question token the chunks' cosines are
pooled by a norm, a soft maximum, so every part of the question counts, and the second best chunk for it a little. Of
many chunks that each cover a question nearly whole the value may exceed 1 a little, as that of `minilm-softsim`.

Letters: C chunks, Q tokens of the question.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError, ModelError
from corag.models.cached import CachedEncoder
from corag.models.engine import EncoderSource, Float32, load_engine
from corag.models.minilm import (
    DIMENSION,
    Encoded,
    MiniLMEncoder,
    TextEncoder,
    encoder_at,
    load_bert,
    weights_sha256,
)
from corag.models.runtime import Backend, Placement, Precision, resolve_device
from corag.models.trained import Adapter, load_adapter, merge
from corag.naming import Part
from corag.rerankers.scorers import ChunkScorer, by_length
from corag.text.chunking import Span
from corag.text.units import UnitChunk, source_of
from corag.types import Chunk, FloatArray, Order

NAME = "minilm-late"
FORM = "late-interaction"
"""Format of its adapters: low-rank updates of the encoder, and `token_weight`, `[384]`, for question tokens."""
TOKEN_WEIGHT = "token_weight"

SHARPNESS = 8.0
"""Order of the norm that pools the chunks of a combination; 4 to 16 are on one curve of evidence against tokens."""
PASSAGE_SHARE = 0.5
"""Weight of a passage's cosines beside those of a sentence of it: of 0, .3, .5 and .7 the one that holds most of the
answer's words at equal tokens on nine kinds of texts (lab notebook)."""


class MiniLMLate(Part):
    """Late interaction, in [0, 1] for one chunk; order does not matter, and nothing is cut.

    Args:
        adapter: Folder of an adapter that updates the encoder; by default the encoder is as published.
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`, as for the next.
        precision: `fp32`, `bf16` or `fp16`.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.
        encoder: Used in place of the encoder that backend and precision select; not beside an adapter.

    Raises:
        InputError: Both adapter and encoder are given.
        ModelError: The adapter is missing, damaged or of another form.
    """

    name = NAME
    max_tokens = None
    """Longer texts are encoded in several windows."""

    def __init__(
        self,
        *,
        adapter: str | Path | None = None,
        backend: Backend = "auto",
        precision: Precision | None = None,
        device: str | None = None,
        encoder: TextEncoder | None = None,
    ) -> None:
        placement = resolve_device("reranker", backend=backend, precision=precision, device=device)
        self._token_weight = np.zeros(DIMENSION, dtype=np.float32)
        if adapter is None:
            self._encoder = encoder or CachedEncoder(encoder_at(placement))
        elif encoder is not None:
            raise InputError("adapter and encoder are both given; the adapter has an encoder of its own: leave one out")
        else:
            loaded = load_adapter(adapter, FORM)
            self._token_weight = token_weight(loaded)
            self._encoder = CachedEncoder(_encoder(loaded, placement))

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text by itself, `[len(texts)]`; 0 for an empty one."""
        question, weights = self._question(query)
        return np.array([best(cosines) @ weights for cosines, _ in self._cosines(question, texts)])

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> LateScorer:
        """Return a scoring function over the best cosines of each chunk, computed here once."""
        question, weights = self._question(query)
        sources = list(dict.fromkeys(source_of(chunk).text for chunk in chunks))
        of_sources = dict(zip(sources, self._cosines(question, sources), strict=True))
        of_passages = {text: best(cosines) for text, (cosines, _) in of_sources.items()}
        maxima = np.zeros((len(chunks), len(weights)))
        for row, chunk in enumerate(chunks):
            text = source_of(chunk).text
            maxima[row] = of_passages[text]
            if isinstance(chunk, UnitChunk):
                cosines, starts = of_sources[text]
                own = best(cosines[within(starts, [(0, chunk.body), *chunk.leads, chunk.span])])
                maxima[row] = PASSAGE_SHARE * maxima[row] + (1 - PASSAGE_SHARE) * own
        return LateScorer(maxima, weights)

    def _question(self, query: str) -> tuple[Encoded, FloatArray]:
        """Return a question, and the weights of its tokens, which add up to 1, `[Q]`."""
        [question] = self._encoder.encoded([query])
        logits = np.asarray(question.tokens @ self._token_weight, dtype=np.float64)
        weights = np.exp(logits - logits.max(initial=-math.inf))
        return question, weights / max(weights.sum(), 1e-300)

    def _cosines(self, question: Encoded, texts: Sequence[str]) -> list[tuple[Float32, NDArray[np.int64]]]:
        """Return each token's cosines to those of the question, `[T, Q]`, and where in its text it begins, `[T]`."""
        found = []
        for text, first in zip(texts, self._encoder.encoded(texts), strict=True):
            rest = [self._encoder.encoded([text], window)[0] for window in range(1, first.num_windows)]
            cosines = [question.cosines(window) for window in (first, *rest)]
            found.append((np.concatenate(cosines), np.concatenate([window.starts for window in (first, *rest)])))
        return found


def best(cosines: Float32) -> FloatArray:
    """Return the best cosine of each question token, `[T, Q]` to `[Q]`, in [0, 1]; 0 without tokens."""
    return np.asarray(np.clip(cosines.max(axis=0, initial=0.0), 0.0, 1.0), dtype=np.float64)


def within(starts: NDArray[np.int64], spans: Sequence[Span]) -> NDArray[np.bool_]:
    """Return which tokens begin in one of the spans, `[T]`."""
    inside = np.zeros(len(starts), dtype=bool)
    for start, end in spans:
        inside[np.searchsorted(starts, start) : np.searchsorted(starts, end)] = True
    return inside


class LateScorer(ChunkScorer):
    """What combinations cover of a question.

    Args:
        maxima: Best cosine of each question token in each chunk, in [0, 1], `[C, Q]`.
        weights: Of the question's tokens, `[Q]`.
    """

    order_matters = False

    def __init__(self, maxima: FloatArray, weights: FloatArray) -> None:
        super().__init__(np.zeros(len(maxima), dtype=bool))
        self._powers, self._weights = maxima**SHARPNESS, weights

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        values = np.empty(len(orders), dtype=np.float64)
        for rows, chunks in by_length(orders):
            # Ascending, so that rounding is the same for every order of the same chunks.
            summed = self._powers[np.sort(chunks, axis=1)].sum(axis=1)
            # Not by BLAS: it sums some rows in another sequence, and equal sets would differ by a bit.
            values[rows] = np.einsum("nq,q->n", summed ** (1 / SHARPNESS), self._weights)
        return values


def token_weight(adapter: Adapter) -> Float32:
    """Return what weighs the states of question tokens, `[384]`; `ModelError` if the adapter lacks it."""
    weight = adapter.tensors.get(TOKEN_WEIGHT)
    if weight is None or weight.shape != (DIMENSION,):
        raise ModelError(f"the adapter {adapter.config.name!r} has no {TOKEN_WEIGHT} of {DIMENSION}; train it again")
    return np.asarray(weight, dtype=np.float32)


@lru_cache(maxsize=4)
def _encoder(adapter: Adapter, placement: Placement) -> MiniLMEncoder:
    def load() -> Any:
        bert = load_bert()
        merge(bert, {name: tensor for name, tensor in adapter.tensors.items() if name != TOKEN_WEIGHT})
        return bert.eval()

    parts = f"{weights_sha256()[:6]}{adapter.weights_sha256}"
    source = EncoderSource(adapter.config.name, parts, ("input_ids", "attention_mask"), load)
    return MiniLMEncoder(load_engine(source, placement), placement)
