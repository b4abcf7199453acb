"""Which texts or vectors come first: by words shared with a question, and by relevance without repetition.

Letters: N texts, D dimensions. What selectors and summarizers share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.errors import InputError
from corag.memory import LRU
from corag.text.words import words
from corag.types import FloatArray, Order


def unit_vectors(vectors: ArrayLike) -> FloatArray:
    """Return vectors `[N, D]` scaled to length 1; `InputError` for other shapes and lengths of 0 or not finite."""
    given = np.asarray(vectors, dtype=np.float64)
    if given.ndim != 2:
        raise InputError(f"expected vectors of the shape [documents, dimensions], got {given.shape}")
    lengths = np.linalg.norm(given, axis=1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise InputError("a vector has no finite length above 0; leave out what has no direction, such as empty texts")
    unit: FloatArray = given / lengths
    return unit


def marginal_relevance(
    similarities: ArrayLike,
    vectors: ArrayLike,
    costs: NDArray[np.int64],
    budget: int,
    *,
    relevance_weight: float = 0.5,
    limit: int | None = None,
) -> Order:
    """Return candidates in the order in which maximal marginal relevance takes them.

    Each step takes the candidate that still fits with the largest
    `relevance_weight * similarity - (1 - relevance_weight) * largest cosine to one already taken` (the equation of
    section 2 of Carbonell and Goldstein, 1998, whose lambda is `relevance_weight`, in [0, 1]); the second term is 0 for
    the first. `similarities` are to the question, `[N]`; `vectors` embeddings of any length but 0, `[N, D]`; `costs`
    tokens, `[N]`, which add up to at most `budget`. Ties go to the first in the list.
    """
    relevance, unit = np.asarray(similarities, dtype=np.float64), unit_vectors(vectors)
    redundancy = np.zeros(len(unit))
    chosen: list[int] = []
    available = np.ones(len(unit), dtype=bool)
    while limit is None or len(chosen) < limit:
        offered = available & (costs <= budget)
        if not offered.any():
            break
        gains = relevance_weight * relevance - (1 - relevance_weight) * redundancy
        best = int(np.where(offered, gains, -np.inf).argmax())
        cosines = unit @ unit[best]
        redundancy = np.maximum(redundancy, cosines) if chosen else cosines
        chosen.append(best)
        available[best] = False
        budget -= int(costs[best])
    return tuple(chosen)


def shared_words(query: str, texts: Sequence[str]) -> FloatArray:
    """Return the share of the question's words that each text contains, words of few texts counting more, `[n]`."""
    asked = dict.fromkeys(words(query))
    found = [asked.keys() & of_text for of_text in _WORDS.get_many(texts, _words)]
    counts = Counter(word for of_text in found for word in of_text)
    weights = {word: math.log(1 + len(texts) / (1 + counts[word])) for word in asked}
    total = sum(weights.values()) or 1.0
    return np.array([sum(weight for word, weight in weights.items() if word in of_text) / total for of_text in found])


def _words(texts: Sequence[str]) -> list[frozenset[str]]:
    return [frozenset(words(text)) for text in texts]


_WORDS: LRU[str, frozenset[str]] = LRU(32 * 10**6)
"""Distinct words of texts: about 4,000 passages with their sentences."""
