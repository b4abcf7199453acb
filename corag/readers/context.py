"""What a context consists of: chunks, titles, gaps and sentences.

A chunk begins with its title on a line of its own, which names the passage but is no answer. Running text differs from
a title by its longer lines and its full stops. In a context of sentences a mark stands for what was left out.
"""

from __future__ import annotations

import re

from corag.text.chunking import Span, sentence_spans
from corag.text.units import GAP, LINE_GAP

MARKER = re.compile(r"\[(\d{1,4})\]")
"""What a language model writes to cite a part of the context."""

_HEADING = re.compile(r"(?:\A|\n\n)([^\n]{0,59}[^\n.!?…:;,])\n(?=\S)")
_GAP = re.compile(f"{GAP}|{LINE_GAP}")


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


def _gaps(context: str) -> list[Span]:
    return [match.span() for match in _GAP.finditer(context)]
