"""What is known of units beyond their text: the passage that each is part of, and where it stands there.

Signals of passages that were not cut are zero.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, permutations

import numpy as np

from corag.rerankers.evidence.passages import Passage
from corag.rerankers.evidence.signals import UNIT_SINGLES, Places, QuestionFeatures
from corag.text.units import UnitChunk
from corag.types import Chunk

_REFERS = re.compile(
    r"\W*(?:he|she|it|they|we|this|these|that|those|his|her|hers|its|their|such|there|here|both|however|also)\b",
    re.IGNORECASE,
)
_WANTS_NUMBER = re.compile(
    r"\b(?:when|years?|dates?|how (?:many|much|old|long|far|high|tall|large|big|often)|percent(?:age)?|number|age"
    r"|amount|total|population)\b",
    re.IGNORECASE,
)
_WANTS_NAME = re.compile(r"\b(?:who|whom|whose|where|which|name)\b", re.IGNORECASE)
_DIGIT = re.compile(r"\d")


def places(
    question: QuestionFeatures, chunks: Sequence[Chunk], passages: Sequence[Passage], sources: Sequence[Passage]
) -> Places:
    """Return what is known of the places of chunks, given their features and those of the passages they stand in.

    A chunk that is no unit is its own source, and all that is known of its place is 0.
    """
    found = Places.unknown(len(chunks))
    cosines = np.array([source.vector @ question.vector for source in sources])
    ranking = {value: rank for rank, value in enumerate(sorted(set(cosines.tolist()), reverse=True))}
    wants_number = _WANTS_NUMBER.search(question.text) is not None
    wants_name = _WANTS_NAME.search(question.text) is not None
    covered: dict[int, float] = {}
    for row, (chunk, passage, source) in enumerate(zip(chunks, passages, sources, strict=True)):
        if not isinstance(chunk, UnitChunk):
            continue
        if id(source) not in covered:
            covered[id(source)] = _covered(question, source)
        body, end = chunk.body, len(chunk.source.text)
        start = chunk.span[0]
        has_number = _DIGIT.search(chunk.source.text, *chunk.span) is not None
        has_name = any(f" {name} " not in question.text and name != passage.title for name in passage.names)
        found.singles[row] = (
            1.0,
            cosines[row],
            covered[id(source)],
            ranking[float(cosines[row])] / 10,
            (start - body) / max(1, end - body),
            not chunk.source.text[body:start].strip(),
            _refers(chunk),
            wants_number * (1.0 if has_number else -1.0),
            wants_name * (1.0 if has_name else -1.0),
        )
    of_source: dict[str, list[tuple[int, UnitChunk]]] = {}
    for row, chunk in enumerate(chunks):
        if isinstance(chunk, UnitChunk):
            of_source.setdefault(chunk.source.id, []).append((row, chunk))
    refers = found.singles[:, UNIT_SINGLES.index("refers")]
    for (row, one), (column, other) in chain.from_iterable(permutations(same, 2) for same in of_source.values()):
        follows = one.span[1] <= other.span[0] and not one.source.text[one.span[1] : other.span[0]].strip()
        found.pairs[row, column] = (1.0, follows, follows and refers[column])
    return found


def _covered(question: QuestionFeatures, source: Passage) -> float:
    """Return how near the question's tokens are to those of a passage, rare ones counting more."""
    if not len(question.ids) or not len(source.ids):
        return 0.0
    return float(np.clip((source.tokens @ question.tokens.T).max(axis=0), 0.0, 1.0) @ question.weights)


def _refers(unit: UnitChunk) -> bool:
    """Tell whether a unit begins with a word that points to what stands before it."""
    return _REFERS.match(unit.source.text, *unit.span) is not None
