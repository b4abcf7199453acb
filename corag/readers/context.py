"""The parts of a context: where its chunks, titles and texts begin, and which chunk an answer came from.

A chunk begins with its title on a line of its own, which names the passage but is no answer. Running text differs from
a title by its longer lines and its full stops.
"""

from __future__ import annotations

import re

from corag.text.documents import SEPARATOR

MIN_OVERLAP = 0.5
"""Minimum share of an answer's words that its chunk must contain."""

_HEADING = re.compile(r"(?:\A|\n\n)([^\n]{0,59}[^\n.!?…:;,])\n(?=\S)")
_WORD = re.compile(r"\w+")


def headings(context: str) -> dict[int, int]:
    """Return the offset of each title line, mapped to that of the text below it."""
    return {match.start(1): match.end() for match in _HEADING.finditer(context)}


def borders(context: str) -> list[int]:
    """Return the offsets at which titles, texts and chunks begin, ascending; no answer crosses one."""
    empty = [match.end() for match in re.finditer(r"\n\n", context)]
    return sorted({*empty, *headings(context).values()})


def answer_chunk(answer: str, context: str) -> int | None:
    """Return the chunk, counted from 0, that contains most of an answer's words; None if none contains half of them.

    Words are runs of letters and digits, compared without case, each counted once. Among equals, a chunk that contains
    the answer as a phrase wins, then the earlier one. Only words are compared: an answer of yes or no, or in other
    words, has no chunk.
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
    best = max(range(len(held)), key=held.__getitem__)
    return best if held[best][0] >= MIN_OVERLAP else None


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
