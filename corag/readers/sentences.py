"""The sentences of a context: where they are, and which are closest in meaning to a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from typing import NamedTuple

import numpy as np

from corag.models.cached import CachedEmbedder
from corag.readers.context import gaps, headings
from corag.text.chunking import Span, sentence_spans
from corag.text.units import GAP
from corag.types import Answer


class Close(NamedTuple):
    """Sentences closest to a question, in the order of the context, and the largest cosine."""

    spans: tuple[Span, ...]
    cosine: float


def sentences(context: str) -> list[Span]:
    """Return the sentences of a context, without white space at their ends.

    Titles of chunks and marks of gaps are no part of one, and end a sentence.
    """
    bodies = headings(context)
    found = (_stripped(context, bodies.get(start, start), end) for start, end in _sentences(context))
    return [span for span in found if span is not None]


def sentence_at(context: str, place: int) -> Span | None:
    """Return the sentence that holds the character at a place; None for a title, a gap or white space."""
    return next((span for span in sentences(context) if span[0] <= place < span[1]), None)


def closest_sentences(query: str, context: str, embedder: CachedEmbedder, number: int) -> Close | None:
    """Return so many sentences of a context that are closest to a question by cosine; None where there is no text.

    Of repeated sentences only the first counts.
    """
    first: dict[str, Span] = {}
    for start, end in sentences(context):
        first.setdefault(" ".join(context[start:end].split()), (start, end))
    if not first:
        return None
    texts = list(first)
    vectors = embedder.vectors([query, *texts])
    cosines = vectors[1:] @ vectors[0]
    best = np.argsort(-cosines, kind="stable")[:number].tolist()
    return Close(tuple(first[texts[index]] for index in sorted(best)), float(cosines[best[0]]))


def with_sentences(answer: Answer, context: str, spans: Sequence[Span]) -> Answer:
    """Return an answer with the sentences of its context that it rests on; as it is for none."""
    texts = [" ".join(context[start:end].split()) for start, end in spans]
    between = [" " if context[before:after].isspace() else GAP for (_, before), (after, _) in pairwise(spans)]
    joined = "".join(piece for pair in zip_longest(texts, between, fillvalue="") for piece in pair)
    return replace(answer, sentence=joined, sentence_spans=tuple(spans))


def _sentences(context: str) -> list[Span]:
    found: list[Span] = []
    begin = 0
    for start, end in [*gaps(context), (len(context), len(context))]:
        found += [(begin + first, begin + last) for first, last in sentence_spans(context[begin:start])]
        begin = end
    return found


def _stripped(text: str, start: int, end: int) -> Span | None:
    """Return the span without white space at its ends; None if nothing is left."""
    start = end - len(text[start:end].lstrip())
    return (start, start + len(text[start:end].rstrip())) if start < end else None
