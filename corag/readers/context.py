"""What a context consists of: chunks, titles, gaps and sentences; and which of them an answer came from.

A chunk begins with its title on a line of its own, which names the passage but is no answer. Running text differs from
a title by its longer lines and its full stops. In a context of sentences a mark stands for what was left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from corag.text.chunking import Span, sentence_spans
from corag.text.documents import SEPARATOR
from corag.text.units import GAP, LINE_GAP

MIN_OVERLAP = 0.5
"""Minimum share of an answer's words that its chunk must contain."""

MARKER = re.compile(r"\[(\d{1,4})\]")
"""What a language model writes to cite a part of the context."""

_HEADING = re.compile(r"(?:\A|\n\n)([^\n]{0,59}[^\n.!?…:;,])\n(?=\S)")
_GAP = re.compile(f"{GAP}|{LINE_GAP}")
_WORD = re.compile(r"\w+")


def headings(context: str) -> dict[int, int]:
    """Return the offset of each title line, mapped to that of the text below it."""
    return {match.start(1): match.end() for match in _HEADING.finditer(context)}


def sentences(context: str) -> list[Span]:
    """Return the sentences of a context, without white space at their ends.

    Titles of chunks and marks of gaps are no part of one, and end a sentence.
    """
    bodies = headings(context)
    spans: list[Span] = []
    begin = 0
    for gap_start, gap_end in [*_gaps(context), (len(context), len(context))]:
        for first, last in sentence_spans(context[begin:gap_start]):
            start, end = bodies.get(begin + first, begin + first), begin + last
            start = end - len(context[start:end].lstrip())
            if start < end:
                spans.append((start, start + len(context[start:end].rstrip())))
        begin = gap_end
    return spans


# --- Where an answer came from ---


def answer_chunk(answer: str, context: str) -> int | None:
    """Return the chunk, counted from 0, that contains most of an answer's words; None if none contains half of them.

    Words are runs of letters and digits, compared without case, each counted once. Ties go to a chunk that contains the
    answer as a phrase, then to the earlier one. Only words are compared: an answer of yes or no, or in other words, has
    no chunk.
    """
    chunk, share = closest(answer, context.split(SEPARATOR))
    return chunk if share >= MIN_OVERLAP else None


def closest(answer: str, texts: Sequence[str]) -> tuple[int, float]:
    """Return which text contains most of an answer's words, see `answer_chunk`, and their share of its words.

    Citation markers are no words of an answer; one without words has a share of 0 in the first text.
    """
    phrase = _words(MARKER.sub("", answer))
    distinct = set(phrase)
    overlaps: list[tuple[float, bool]] = []
    for text in texts:
        words = _words(text)
        is_phrase = f" {' '.join(phrase)} " in f" {' '.join(words)} "
        overlaps.append((len(distinct.intersection(words)) / max(len(distinct), 1), is_phrase and bool(distinct)))
    best = max(range(len(overlaps)), key=overlaps.__getitem__)
    return best, overlaps[best][0]


def _gaps(context: str) -> list[Span]:
    return [match.span() for match in _GAP.finditer(context)]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
