"""Late interaction over token embeddings: `late` by any encoder, and the baseline `minilm-softsim`.

As in ColBERT (Khattab and Zaharia, 2020, eq. 3), a question token is worth its best cosine among the tokens of a text,
here with a mean in place of the sum, so that values of one chunk are in [0, 1]. Tokens are encoded once per chunk; an
order then costs a few operations on a few rows.

A combination is worth what its chunks cover of the question together: for each question token the chunks' cosines are
pooled by a norm, a soft maximum, so every part of the question counts, and the second best chunk for it a little. With
a maximum, chunks beyond the first few would add almost nothing, and at larger budgets a search for the best value would
leave out evidence. Of many chunks that each cover a question nearly whole the value may exceed 1 a little.

`late` encodes a passage once and values a sentence by its tokens in that encoding, where what its pronouns stand for is
known, and partly by the passage itself, so that of two equal sentences the one from the better passage wins.

Letters: C chunks, Q tokens of the question, T tokens of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from common.checks import check_range
from corag.models.encoders import (
    MAX_TOKENS,
    Encoded,
    EncoderPart,
    GivenEncoder,
    best_cosines,
    token_cosines,
    tokens_within,
)
from corag.rerankers.scorers import ChunkScorer, by_length
from corag.text.units import UnitChunk, source_of
from corag.text.words import exact_words, words
from corag.types import Chunk, FloatArray, Order

SHARPNESS = 8.0
"""Order of the norm that pools the chunks of a combination; 4 to 16 are on one curve of evidence against tokens."""
PASSAGE_SHARE = 0.5
"""Weight of a passage's cosines beside those of a sentence of it: of 0, .3, .5 and .7 the one that holds most of the
answer's words at equal tokens on nine kinds of texts (lab notebook)."""


class LateScorer(ChunkScorer):
    """What combinations cover of a question.

    Args:
        maxima: Best cosine of each question token in each chunk, in [0, 1], `[C, Q]`.
        sharpness: Order of the norm.
        truncated: Which chunks were cut, `[C]`; none by default.
    """

    order_matters = False

    def __init__(
        self, maxima: FloatArray, sharpness: float = SHARPNESS, truncated: NDArray[np.bool_] | None = None
    ) -> None:
        super().__init__(np.zeros(len(maxima), dtype=bool) if truncated is None else truncated)
        self.maxima, self._sharpness = maxima, sharpness

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        self.count_truncated(orders)
        values = np.empty(len(orders), dtype=np.float64)
        for rows, chunks in by_length(orders):
            # Ascending, so that rounding is the same for every order of the same chunks.
            values[rows] = self._pooled(self.maxima[np.sort(chunks, axis=1)]).mean(axis=1)
        return values

    def _pooled(self, maxima: FloatArray) -> FloatArray:
        """Return the norm over chunks, `[orders, Q]`, given `[orders, chunks, Q]`."""
        largest: FloatArray = maxima.max(axis=1)
        if maxima.shape[1] == 1:
            return largest
        # Relative to the largest, so that no power is too small for a float.
        shares = maxima / np.where(largest > 0, largest, 1.0)[:, None]
        sums: FloatArray = (shares**self._sharpness).sum(axis=1)
        return np.asarray(largest * sums ** (1 / self._sharpness))


@dataclass(kw_only=True, eq=False)
class MiniLMSoftSim(EncoderPart):
    """Raw late interaction by MiniLM: a baseline; the order of chunks does not matter, texts are cut to the window.

    Attributes:
        sharpness: Order of the norm over the chunks of a combination, at least 1; a high one approaches the maximum.
    """

    name = "minilm-softsim"
    max_tokens = MAX_TOKENS

    sharpness: float = SHARPNESS

    def __post_init__(self) -> None:
        check_range("sharpness", self.sharpness, 1, np.inf, "typical: 4-12")
        super().__post_init__()

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text by itself, `[len(texts)]`; 0 for an empty one."""
        return self.scorer(query, [Chunk("text", text) for text in texts])([(row,) for row in range(len(texts))])

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> LateScorer:
        """Return a scoring function over the best cosines of each chunk, computed here once."""
        encoded = self._encoder.encoded([chunk.text for chunk in chunks])
        question = self._encoder.question(query)
        maxima = np.zeros((len(chunks), max(1, len(question.ids))))
        if len(question.ids):
            for row, of_text in enumerate(encoded):
                maxima[row] = best_cosines(question.cosines(of_text))
        cut = np.array([of_text.num_windows > 1 for of_text in encoded], dtype=bool)
        return LateScorer(maxima, self.sharpness, cut)


@dataclass(kw_only=True, eq=False)
class Late(EncoderPart):
    """Late interaction of a question and passages, sentences in the encoding of theirs; nothing is cut.

    The order of chunks does not matter.

    The setting `encoder` is described at `EncoderPart`.
    """

    name = "late"
    max_tokens = None
    """Longer texts are encoded in several windows."""

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text by raw token vectors, `[len(texts)]`; 0 for an empty one."""
        return self._scorer(query, [Chunk("text", text) for text in texts], centred=False)(
            [(row,) for row in range(len(texts))]
        )

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> LateScorer:
        """Return a scoring function over the best cosines of each chunk, computed here once."""
        return self._scorer(query, chunks, centred=self._encoder.model_name != "minilm")

    def _scorer(self, query: str, chunks: Sequence[Chunk], *, centred: bool) -> LateScorer:
        question = self._encoder.question(query)
        sources = list(dict.fromkeys(source_of(chunk).text for chunk in chunks))
        cosines_of = token_cosines(self._encoder, question, sources, centred=centred)
        of_sources = dict(zip(sources, cosines_of, strict=True))
        of_passages = {text: best_cosines(cosines) for text, (cosines, _) in of_sources.items()}
        maxima = np.zeros((len(chunks), max(1, len(question.ids))))
        agreement = _Agreement(query, question)
        for row, chunk in enumerate(chunks if len(question.ids) else ()):
            text = source_of(chunk).text
            maxima[row] = agreement(of_passages[text], text)
            if isinstance(chunk, UnitChunk):
                cosines, starts = of_sources[text]
                own = best_cosines(cosines[tokens_within(starts, [(0, chunk.body), *chunk.leads, chunk.span])])
                own = agreement(own, chunk.text)
                maxima[row] = PASSAGE_SHARE * maxima[row] + (1 - PASSAGE_SHARE) * own
        return LateScorer(maxima)


class _Agreement:
    """Numbers and codes of a question count only in texts that have them as whole words.

    Pieces of words cannot tell 10.0.0.7 from 10.0.0.77, nor 2N3904 from 2N3906.
    """

    def __init__(self, query: str, question: Encoded) -> None:
        self._columns = [
            (word, tokens_within(question.starts, [(start, end)])) for word, start, end in exact_words(query)
        ]

    def __call__(self, maxima: FloatArray, text: str) -> FloatArray:
        """Return the best cosines of the question's tokens in a text, `[Q]`."""
        if self._columns:
            found = set(words(text))
            maxima = maxima.copy()
            for word, columns in self._columns:
                if word not in found:
                    maxima[columns] = 0
        return maxima


class MiniLMLate(Late):
    """By MiniLM."""

    name = "minilm-late"


@dataclass(kw_only=True, eq=False)
class E5Late(Late):
    """By multilingual-e5-small."""

    name = "e5-late"

    encoder: GivenEncoder = field(default="e5", init=False)
