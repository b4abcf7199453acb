"""Which chunk of a context a generated answer came from: the rule that all generating readers share."""

from __future__ import annotations

import re

from corag.text.documents import SEPARATOR

MIN_OVERLAP = 0.5
"""The least share of an answer's words that its chunk has to hold."""

_WORD = re.compile(r"\w+")


def answer_chunk(answer: str, context: str) -> int | None:
    """Return the chunk, counted from 0, that holds the most of an answer's words; None where none holds half of them.

    Words are runs of letters and digits, compared without regard to case, each counted once. Among equals, a chunk that
    holds the answer's words one after the other wins, then the earlier one. The words say nothing of meaning: an answer
    of yes or no, or in words of its own, has no chunk.

    Args:
        answer: The answer.
        context: Chunks, divided by empty lines as in a selection.
    """
    phrase = _words(answer)
    words = set(phrase)
    if not words:
        return None
    held: list[tuple[float, bool]] = []
    for chunk in context.split(SEPARATOR):
        there = _words(chunk)
        is_phrase = f" {' '.join(phrase)} " in f" {' '.join(there)} "
        held.append((len(words.intersection(there)) / len(words), is_phrase))
    best = max(range(len(held)), key=lambda place: (*held[place], -place))
    return best if held[best][0] >= MIN_OVERLAP else None


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
