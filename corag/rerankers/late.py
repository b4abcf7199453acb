"""`minilm-late`: late interaction in which a passage is encoded once.

As in ColBERT (Khattab and Zaharia, 2020, eq. 3), a question token is worth its best cosine among the tokens of a text.
A sentence is valued by its tokens in the encoding of its passage, where what its pronouns stand for is known, and
partly by the passage itself, so that of two equal sentences the one from the better passage wins.

A combination is worth what its chunks cover of the question together: for each question token the chunks' cosines are
pooled by a norm, a soft maximum, so every part of the question counts, and the second best chunk for it a little.

Letters: C chunks, Q tokens of the question.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError, ModelError
from corag.models.cached import CachedEncoder
from corag.models.engine import EncoderSource, Float32, load_engine
from corag.models.minilm import (
    DIMENSION,
    MAX_TOKENS,
    MiniLMEncoder,
    TextEncoder,
    encoder_at,
    load_bert,
    unit,
    weights_sha256,
)
from corag.models.runtime import Backend, Placement, Precision, resolve_device
from corag.models.trained import Adapter, load_adapter, merge
from corag.naming import Part
from corag.rerankers.scorers import ChunkScorer, by_length
from corag.text.chunking import Span
from corag.text.tokens import encode, load_tokenizer, model_folder
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
        self._tokenizer = load_tokenizer(model_folder() / "tokenizer.json")

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text by itself, `[len(texts)]`; 0 for an empty one."""
        question = self._question(query)
        return np.array([question.maxima(vectors) @ question.weights for vectors, _ in self._encoded(texts)])

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> LateScorer:
        """Return a scoring function over the best cosines of each chunk, computed here once."""
        question = self._question(query)
        sources = {source_of(chunk).text: 0 for chunk in chunks}
        encoded = dict(zip(sources, self._encoded(list(sources)), strict=True))
        of_passages = {text: question.maxima(vectors) for text, (vectors, _) in encoded.items()}
        maxima = np.zeros((len(chunks), len(question.weights)))
        for row, chunk in enumerate(chunks):
            text = source_of(chunk).text
            maxima[row] = of_passages[text]
            if isinstance(chunk, UnitChunk):
                vectors, starts = encoded[text]
                own = question.maxima(vectors[within(starts, [(0, chunk.body), *chunk.leads, chunk.span])])
                maxima[row] = PASSAGE_SHARE * maxima[row] + (1 - PASSAGE_SHARE) * own
        return LateScorer(maxima, question.weights)

    def _question(self, query: str) -> _Question:
        [encoding] = encode(self._tokenizer, [query])
        [states] = self._encoder.states([np.array(encoding.ids[:MAX_TOKENS], dtype=np.int64)])
        logits = np.asarray(states[1:-1] @ self._token_weight, dtype=np.float64)
        weights = np.exp(logits - logits.max(initial=-math.inf))
        return _Question(unit(states[1:-1]), weights / max(weights.sum(), 1e-300))

    def _encoded(self, texts: Sequence[str]) -> list[tuple[Float32, NDArray[np.int64]]]:
        """Return unit vectors of the tokens of each text, `[T, 384]`, and where in it each begins, `[T]`."""
        encodings = list(encode(self._tokenizer, texts, offsets=True))
        ids = [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
        windows = [np.split(of_text, range(MAX_TOKENS, len(of_text), MAX_TOKENS)) for of_text in ids]
        states = iter(self._encoder.states(list(chain.from_iterable(windows))))
        vectors = [unit(np.concatenate([next(states)[1:-1] for _ in of_text])) for of_text in windows]
        starts = [np.array([start for start, _ in encoding.offsets], dtype=np.int64) for encoding in encodings]
        return list(zip(vectors, starts, strict=True))


class _Question(NamedTuple):
    """Unit vectors of a question's tokens, `[Q, 384]`, and their weights, which add up to 1, `[Q]`."""

    vectors: Float32
    weights: FloatArray

    def maxima(self, vectors: Float32) -> FloatArray:
        """Return the best cosine of each question token among vectors, `[T, 384]` to `[Q]`, in [0, 1]."""
        if not len(vectors) or not len(self.vectors):
            return np.zeros(len(self.weights))
        return np.asarray(np.clip((vectors @ self.vectors.T).max(axis=0), 0.0, 1.0), dtype=np.float64)


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
