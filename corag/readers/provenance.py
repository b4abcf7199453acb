"""The chunk of a context that a generated answer came from, for all generating readers."""

from __future__ import annotations

import re

from corag.text.documents import SEPARATOR

MIN_OVERLAP = 0.5
"""Minimum share of an answer's words that its chunk must contain."""

_WORD = re.compile(r"\w+")


def answer_chunk(answer: str, context: str) -> int | None:
    """Return the chunk, counted from 0, that contains most of an answer's words; None if none contains half of them.

    Words are runs of letters and digits, compared without case, each counted once. Among equals, a chunk that contains
    the answer as a phrase wins, then the earlier one. Only words are compared: an answer of yes or no, or in other
    words, has no chunk.

    Args:
        answer: The answer.
        context: Chunks, separated by empty lines as in a selection.
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
