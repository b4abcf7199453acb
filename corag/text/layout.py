"""How a prompt shows the chosen chunks, if not as texts with empty lines between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from corag.text.documents import body
from corag.text.units import Span, UnitChunk, assemble, disjoint
from corag.types import Chunk


class Piece(NamedTuple):
    """The chosen part of one chunk: all of it, or some of its sentences.

    Attributes:
        chunk: The chunk as it was offered.
        text: Its text without the title; gaps between sentences are marked.
        indices: Which of the chosen chunks are in it.
        spans: Span of each of these in `text`.
        cut: Spans of the chosen sentences in the text of the chunk without its title; empty for all of it.
    """

    chunk: Chunk
    text: str
    indices: tuple[int, ...]
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
    """Return the chosen part of each chunk, in the order of the first choice from each; see `disjoint`."""
    shown = disjoint(chosen)
    by_source: dict[str | int, list[int]] = {}
    for index, chunk in enumerate(shown):
        if chunk is not None:
            by_source.setdefault(chunk.source.id if isinstance(chunk, UnitChunk) else index, []).append(index)
    parts: list[Piece] = []
    for indices in by_source.values():
        units = [unit for index in indices if isinstance(unit := shown[index], UnitChunk)]
        if not units:
            text = body(chosen[indices[0]])
            parts.append(Piece(chosen[indices[0]], text, tuple(indices), ((0, len(text)),)))
            continue
        text, spans = assemble(units)
        first = units[0]
        within = tuple((start - first.body, end - first.body) for start, end in spans)
        cut = tuple(sorted((unit.span[0] - first.body, unit.span[1] - first.body) for unit in units))
        parts.append(Piece(first.source, text[first.body :], tuple(indices), within, cut))
    return parts


def laid_out(chosen: Sequence[Chunk], layout: Layout) -> tuple[str, list[Span]]:
    """Return the text that a layout shows for chosen chunks, and the span of each of them in it.

    If a layout changes a text, as by escaping it, the spans of its chunks are empty.
    """
    arranged = layout.arranged(pieces(chosen))
    text, begin = layout.text(arranged), 0
    spans: list[Span] = [(0, 0)] * len(chosen)
    for piece in arranged:
        at = text.find(piece.text, begin)
        for index, (start, end) in zip(piece.indices, piece.spans, strict=True):
            spans[index] = (begin, begin) if at < 0 else (at + start, at + end)
        begin = begin if at < 0 else at + len(piece.text)
    return text, spans
