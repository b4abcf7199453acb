"""Selections, texts and traces as plain data for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from corag.app.source import Evidence
from corag.shown import cut_at_marks
from corag.text.documents import citation
from corag.text.units import Span, source_of
from corag.text.visible import to_json, visible
from corag.types import Chunk, Selection


def visible_data(value: Any) -> Any:
    """Return plain data with control characters made visible in all of its texts; names of fields stay."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {name: visible_data(inner) for name, inner in value.items()}
    if isinstance(value, Sequence):
        return [visible_data(inner) for inner in value]
    return value


def title_of(chunk: Chunk) -> str:
    """Return what a chunk is listed under: its source or its title."""
    title = chunk.metadata.get("title")
    return str(title) if title and not chunk.metadata.get("headings") else citation(source_of(chunk))


def trace_rows(selection: Selection) -> list[tuple[str, str]]:
    """Return the fields of a selection's trace with their values as texts."""
    return [
        (name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else _text(value))
        for name, value in selection.trace.to_dict().items()
        if value not in ({}, [], ())
    ]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(inner)}" for name, inner in value.items())
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, Sequence):
        return ", ".join(map(_text, value))
    return to_json(value, default=str)


def blocks(selection: Selection, evidence: Evidence | None, marks: Sequence[Span] = ()) -> list[dict[str, Any]]:
    """Return blocks that join to the text of a selection: its chunks, and the text between them.

    A block has `place`, the position of its chunk, from 0, or None; whether it is `evidence`; and `parts`, pairs of a
    text and whether it is in `marks`, which are character spans.
    """
    text, end_of_last = selection.text, 0
    pieces: list[tuple[int | None, int, int]] = []
    for position, (start, end) in enumerate(selection.spans):
        pieces += [(None, end_of_last, start), (position, start, end)]
        end_of_last = end
    pieces.append((None, end_of_last, len(text)))
    return [
        {
            "place": position,
            "evidence": None if position is None or evidence is None else evidence.marks(selection.chunks[position]),
            "parts": cut_at_marks(text, (start, end), marks),
        }
        for position, start, end in pieces
        if position is not None or text[start:end].strip()
    ]
