"""`extractive`: the sentences of the context that are closest to the question, in their own order.

Runs offline. Sentences are embedded by all-MiniLM-L6-v2, each once while its embedding is in the cache. A chunk begins
with its title on a line of its own, which names the passage but is no answer; running text differs from a title by its
longer lines and its full stops. In a context of sentences a mark stands for what was left out.
"""

from __future__ import annotations

import re

import numpy as np

from common.checks import check_count
from corag.models.embedders import CachedEmbedder, MiniLMEmbedder
from corag.registry import Part
from corag.text.chunking import Span, sentence_spans
from corag.text.documents import SEPARATOR
from corag.text.units import ENDS, GAP, LINE_GAP
from corag.types import Answer

_HEADING = re.compile(rf"(?:\A|\n\n)([^\n]{{0,59}}[^\n:：{ENDS}])\n(?=\S)")  # noqa: RUF001
_GAP = re.compile(f"{GAP}|{LINE_GAP}")


class ExtractiveReader(Part):
    """Answers with the best sentences of the context; the title line of a chunk is not one of them.

    Args:
        sentences: Maximum sentences of an answer, at least 1.
    """

    def __init__(self, *, sentences: int = 2) -> None:
        check_count("sentences", sentences, "typical: 1-3")
        self.name = "extractive"
        self.sentences = sentences
        self._embedder = CachedEmbedder(MiniLMEmbedder())

    def answer(self, query: str, context: str) -> Answer:
        """Return the best sentences; an empty answer with confidence 0 for a context without text."""
        first: dict[str, Span] = {}
        for start, end in sentences(context):
            first.setdefault(" ".join(context[start:end].split()), (start, end))
        if not first:
            return Answer("", confidence=0.0)
        texts = list(first)
        vectors = self._embedder.vectors([query, *texts])
        cosines = vectors[1:] @ vectors[0]
        best = np.argsort(-cosines, kind="stable")[: self.sentences].tolist()
        spans = tuple(first[texts[index]] for index in sorted(best))
        text = " ".join(texts[index] for index in sorted(best))
        confidence = float(np.clip(cosines[best[0]], 0.0, 1.0))
        return Answer(text, confidence, spans, chunk=context.count(SEPARATOR, 0, spans[0][0]))


def sentences(context: str) -> list[Span]:
    """Return the sentences of a context, without white space at their ends.

    Titles of chunks and marks of gaps are no part of one, and end a sentence.
    """
    bodies = {match.start(1): match.end() for match in _HEADING.finditer(context)}
    gaps = [match.span() for match in _GAP.finditer(context)]
    spans: list[Span] = []
    begin = 0
    for gap_start, gap_end in [*gaps, (len(context), len(context))]:
        for first, last in sentence_spans(context[begin:gap_start]):
            start, end = bodies.get(begin + first, begin + first), begin + last
            start = end - len(context[start:end].lstrip())
            if start < end:
                spans.append((start, start + len(context[start:end].rstrip())))
        begin = gap_end
    return spans
