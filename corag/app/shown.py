"""Texts and traces as the page shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from corag.app.source import Evidence
from corag.text.documents import citation
from corag.text.units import Span, source_of
from corag.text.visible import to_json, visible
from corag.types import Chunk, Selection


def shown(value: Any) -> Any:
    """Return plain data with control characters made visible in all of its texts; names of fields stay."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {name: shown(one) for name, one in value.items()}
    if isinstance(value, Sequence):
        return [shown(one) for one in value]
    return value


def title_of(chunk: Chunk) -> str:
    """Return what a chunk is listed under: where it comes from, or its title."""
    title = chunk.metadata.get("title")
    return str(title) if title and not chunk.metadata.get("headings") else citation(source_of(chunk))


def noted(trace: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the fields of a trace with their values as texts."""
    return [
        (name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else _text(value))
        for name, value in trace.items()
        if value not in ({}, [], ())
    ]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(one)}" for name, one in value.items())
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, Sequence):
        return ", ".join(map(_text, value))
    return to_json(value, default=str)


def blocks(selection: Selection, evidence: Evidence | None, marks: Sequence[Span] = ()) -> list[dict[str, Any]]:
    """Return the text of a selection, cut where its chunks begin and end.

    Args:
        selection: The selection.
        evidence: What is known about the evidence, or None.
        marks: Places in the text that are marked, in characters.

    Returns:
        Blocks that join to the text: `place` of the chunk, from 0, or None for what stands between chunks; whether it
        is `evidence`; and its `parts`, pairs of a text and whether it is marked.
    """
    text, at = selection.text, 0
    found: list[dict[str, Any]] = []
    for place, (start, end) in enumerate(selection.spans):
        if text[at:start].strip():
            found.append({"place": None, "evidence": None, "parts": _parts(text, at, start, marks)})
        known = None if evidence is None else evidence.marks(selection.chunks[place])
        found.append({"place": place, "evidence": known, "parts": _parts(text, start, end, marks)})
        at = end
    if text[at:].strip():
        found.append({"place": None, "evidence": None, "parts": _parts(text, at, len(text), marks)})
    return found


def _parts(text: str, start: int, end: int, marks: Sequence[Span]) -> list[tuple[str, bool]]:
    edges = {start, end, *(min(max(edge, start), end) for mark in marks for edge in mark)}
    cuts = sorted(edges)
    return [
        (text[begin:stop], any(first <= begin and stop <= last for first, last in marks))
        for begin, stop in pairwise(cuts)
    ]
