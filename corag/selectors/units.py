"""Choosing below the passage: which units of the candidates are offered, and with which scores."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from corag.text.units import Unit, units
from corag.types import Candidate, Chunk, FloatArray

DEFAULT_MAX_UNITS = 60
"""20 chunks of 128 tokens have about 100 sentences."""
NEIGHBOUR = 0.8
"""What a unit's score counts for its neighbours: "He was born ..." follows the sentence that says who."""

_WORD = re.compile(r"\w+")


def unit_candidates(
    query: str, passages: Sequence[Chunk], ranking: Sequence[int], unit: Unit, max_units: int
) -> list[Candidate]:
    """Return the units of passages that are most promising, best first, with their scores.

    The score of a unit is the share of the question's words that it holds, by rarity among the units, plus the rank of
    its passage, from 1 down to 0. The `max_units` of the highest scores stay, and their neighbours.

    Args:
        query: The question.
        passages: The passages.
        ranking: Their indices, best first.
        unit: What they are cut into.
        max_units: The most units to return.
    """
    cut = [units(passages[index], unit) for index in ranking]
    parts = [part for of_passage in cut for part in of_passage]
    if not parts:
        return []
    ranks = np.repeat(np.arange(len(cut)), [len(of_passage) for of_passage in cut])
    scores = _shared_words(query, [part.text for part in parts]) + 1 - ranks / len(ranking)
    promise = scores.copy()
    same = ranks[1:] == ranks[:-1]
    promise[1:] = np.where(same, np.maximum(promise[1:], NEIGHBOUR * scores[:-1]), promise[1:])
    promise[:-1] = np.where(same, np.maximum(promise[:-1], NEIGHBOUR * scores[1:]), promise[:-1])
    kept = np.sort(np.argsort(-promise, kind="stable")[:max_units])
    best_first = kept[np.argsort(-scores[kept], kind="stable")]
    return [Candidate(parts[index], float(scores[index]), "score") for index in best_first]


def _shared_words(query: str, texts: Sequence[str]) -> FloatArray:
    """Return the share of the question's words that each text holds, words of few texts counting more, `[n]`."""
    words = [frozenset(_WORD.findall(text.lower())) for text in texts]
    held = Counter(word for of_text in words for word in of_text)
    asked = {word: math.log(1 + len(texts) / (1 + held[word])) for word in set(_WORD.findall(query.lower()))}
    total = sum(asked.values()) or 1.0
    return np.array([sum(weight for word, weight in asked.items() if word in of_text) / total for of_text in words])
