"""`bm25`: Okapi BM25 of the joined text, as a share of the most that the question could score.

Terms are those of `corag.text.words`. The score itself is worked out here because a combination's term counts and
length are the sums over its chunks: nothing has to be tokenised or indexed again per order.
Formula: Lucene's variant (Kamphuis et al., "Which BM25 do you mean?", ECIR 2020), checked against bm25s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.checks import check_range, check_text
from corag.registry import Part
from corag.text.words import words
from corag.types import Chunk, FloatArray, Order

REFERENCE_LENGTH = 100.0
"""Average length in words that `score` assumes, which sees no pool to measure it in."""


@dataclass(kw_only=True, eq=False)
class Bm25(Part):
    """BM25 as a share of the highest score that the question's terms could reach, in [0, 1).

    Rarity is measured among the candidates in `scorer`. `score` has no pool, so there every term weighs the
    same and `REFERENCE_LENGTH` is used as the average length; a text's score never depends on its neighbours.

    Attributes:
        k1: Term frequency saturation.
        b: Length normalisation, 0 (none) to 1 (full). A combination is as long as its chunks together, so the
            usual 0.75 punishes every further chunk: with it `corag` finds the whole evidence of 36% of 200
            HotpotQA training questions at 256 tokens, with 0.4 of 43%.
    """

    name = "bm25"
    max_tokens = None

    k1: float = 1.5
    b: float = 0.4

    def __post_init__(self) -> None:
        check_range("k1", self.k1, 0.001, 1000, "typical: 1.5")
        check_range("b", self.b, 0, 1, "typical: 0.4")

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`, every term of the question weighing the same."""
        counts, lengths = _count_terms(query, texts)
        scorer = Bm25Scorer(counts, lengths, np.ones(counts.shape[1]), REFERENCE_LENGTH, self.k1, self.b)
        return scorer([(row,) for row in range(len(texts))])

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> Bm25Scorer:
        """Return a scoring function with rarity and average length taken from `chunks`."""
        counts, lengths = _count_terms(query, [chunk.text for chunk in chunks])
        frequency = (counts > 0).sum(axis=0)
        # A term that no candidate holds cannot tell candidates apart; counted, it would only shrink the scale.
        idf = np.where(frequency > 0, np.log1p((len(chunks) - frequency + 0.5) / (frequency + 0.5)), 0.0)
        # Chunks without words would make the average 0, or undefined.
        average = max(1.0, lengths.sum() / max(1, len(chunks)))
        return Bm25Scorer(counts, lengths, idf, average, self.k1, self.b)


class Bm25Scorer:
    """BM25 over summed term counts, `[chunks, terms]`, of chunks of some `lengths`, `[chunks]`, in words."""

    order_matters = False
    num_truncated = 0

    def __init__(
        self, counts: FloatArray, lengths: FloatArray, weights: FloatArray, average_length: float, k1: float, b: float
    ) -> None:
        self._counts, self._lengths = counts, lengths
        self._weights = weights / weights.sum() if weights.sum() > 0 else weights
        self._average_length, self._k1, self._b = average_length, k1, b

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        if not orders:
            return np.zeros(0)
        counts = np.array([self._counts[list(order)].sum(axis=0) for order in orders])
        lengths = np.array([self._lengths[list(order)].sum() for order in orders])
        damping = self._k1 * (1 - self._b + self._b * lengths / self._average_length)
        with np.errstate(invalid="ignore"):  # 0 / 0 for an empty text when b is 1
            saturated = np.nan_to_num(counts / (counts + damping[:, None]))
        return np.asarray(saturated @ self._weights)


def _count_terms(query: str, texts: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    """Return occurrences of the question's terms `[texts, terms]` and lengths `[texts]`."""
    for text in (query, *texts):
        check_text("a text", text)
    columns = {term: column for column, term in enumerate(dict.fromkeys(words(query)))}
    found = list(map(words, texts))
    counts = np.zeros((len(texts), len(columns)))
    for row, terms in enumerate(found):
        for term, count in Counter(terms).items():
            if term in columns:
                counts[row, columns[term]] = count
    return counts, np.array(list(map(len, found)), dtype=np.float64)
