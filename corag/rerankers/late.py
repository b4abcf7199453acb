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

from collections.abc import Sequence

import numpy as np

from corag.models.cached import CachedEncoder
from corag.models.minilm import Encoded, TextEncoder, best_cosines, minilm_encoder, token_cosines, tokens_within
from corag.models.runtime import Backend, Precision
from corag.naming import Part
from corag.rerankers.scorers import ChunkScorer, by_length
from corag.text.units import UnitChunk, source_of
from corag.types import Chunk, FloatArray, Order

SHARPNESS = 8.0
"""Order of the norm that pools the chunks of a combination; 4 to 16 are on one curve of evidence against tokens."""
PASSAGE_SHARE = 0.5
"""Weight of a passage's cosines beside those of a sentence of it: of 0, .3, .5 and .7 the one that holds most of the
answer's words at equal tokens on nine kinds of texts (lab notebook)."""


class MiniLMLate(Part):
    """Late interaction, in [0, 1] for one chunk; order does not matter, and nothing is cut.

    Args:
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`, as for the next.
        precision: `fp32`, `bf16` or `fp16`.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.
        encoder: Used in place of the encoder that backend and precision select.
    """

    name = "minilm-late"
    max_tokens = None
    """Longer texts are encoded in several windows."""

    def __init__(
        self,
        *,
        backend: Backend = "auto",
        precision: Precision | None = None,
        device: str | None = None,
        encoder: TextEncoder | None = None,
    ) -> None:
        self._encoder = encoder or CachedEncoder(minilm_encoder(backend, precision, device, role="reranker"))

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text by itself, `[len(texts)]`; 0 for an empty one."""
        question, weights = self._question(query)
        return np.array(
            [best_cosines(cosines) @ weights for cosines, _ in token_cosines(self._encoder, question, texts)]
        )

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> LateScorer:
        """Return a scoring function over the best cosines of each chunk, computed here once."""
        question, weights = self._question(query)
        sources = list(dict.fromkeys(source_of(chunk).text for chunk in chunks))
        of_sources = dict(zip(sources, token_cosines(self._encoder, question, sources), strict=True))
        of_passages = {text: best_cosines(cosines) for text, (cosines, _) in of_sources.items()}
        maxima = np.zeros((len(chunks), len(weights)))
        for row, chunk in enumerate(chunks):
            text = source_of(chunk).text
            maxima[row] = of_passages[text]
            if isinstance(chunk, UnitChunk):
                cosines, starts = of_sources[text]
                own = best_cosines(cosines[tokens_within(starts, [(0, chunk.body), *chunk.leads, chunk.span])])
                maxima[row] = PASSAGE_SHARE * maxima[row] + (1 - PASSAGE_SHARE) * own
        return LateScorer(maxima, weights)

    def _question(self, query: str) -> tuple[Encoded, FloatArray]:
        """Return a question, and the weights of its tokens, which add up to 1, `[Q]`."""
        [question] = self._encoder.encoded([query])
        return question, np.full(len(question.ids), 1 / max(1, len(question.ids)))


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
