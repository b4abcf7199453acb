"""How a prompt shows what was chosen, where that is not texts with empty lines between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from corag.text.documents import body
from corag.text.units import Span, UnitChunk, assemble
from corag.types import Chunk


class Piece(NamedTuple):
    """What was chosen of one chunk: all of it, or some of its sentences.

    Attributes:
        chunk: The chunk as it was offered.
        text: Its text without the title; of sentences, with a mark where others were left out between them.
        places: Which of the chosen ones are in it.
        spans: Where each of these stands in `text`.
        cut: Where the chosen sentences stood in the text of the chunk without its title; empty for all of it.
    """

    chunk: Chunk
    text: str
    places: tuple[int, ...]
    spans: tuple[Span, ...]
    cut: tuple[Span, ...] = ()


class Layout(Protocol):
    """Says what a prompt shows; its tokens are what a selection costs."""

    @property
    def separator(self) -> str:
        """What it puts between two pieces."""

    def arranged(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Return the pieces in the order in which it shows them."""

    def text(self, pieces: Sequence[Piece]) -> str:
        """Return the text that it shows for some pieces in this order."""


def pieces(chosen: Sequence[Chunk]) -> list[Piece]:
    """Return what was chosen of each chunk, in the order of the first choice from each."""
    by_source: dict[str | int, list[int]] = {}
    for place, chunk in enumerate(chosen):
        by_source.setdefault(chunk.source.id if isinstance(chunk, UnitChunk) else place, []).append(place)
    found: list[Piece] = []
    for places in by_source.values():
        first = chosen[places[0]]
        if not isinstance(first, UnitChunk):
            text = body(first)
            found.append(Piece(first, text, tuple(places), ((0, len(text)),)))
            continue
        units = [unit for place in places if isinstance(unit := chosen[place], UnitChunk)]
        text, spans = assemble(units)
        shown = tuple((start - first.body, end - first.body) for start, end in spans)
        cut = tuple(sorted((unit.span[0] - first.body, unit.span[1] - first.body) for unit in units))
        found.append(Piece(first.source, text[first.body :], tuple(places), shown, cut))
    return found


def laid_out(chosen: Sequence[Chunk], layout: Layout) -> tuple[str, list[Span]]:
    """Return the text that a layout shows for chosen chunks, and where each of them stands in it.

    A layout that changes a text, as by escaping it, leaves the span of what stands there empty.
    """
    arranged = layout.arranged(pieces(chosen))
    text, begin = layout.text(arranged), 0
    spans: list[Span] = [(0, 0)] * len(chosen)
    for piece in arranged:
        at = text.find(piece.text, begin)
        for place, (start, end) in zip(piece.places, piece.spans, strict=True):
            spans[place] = (begin, begin) if at < 0 else (at + start, at + end)
        begin = begin if at < 0 else at + len(piece.text)
    return text, spans
