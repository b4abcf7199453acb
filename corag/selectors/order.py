"""In which order the chosen chunks stand in the prompt; what is chosen, and its value, stay as they are.

- `value`: as the selector chose them.
- `ends`: the best first and last, where models read most closely: first, third, fifth, ... sixth, fourth, second. After
  Liu et al., "Lost in the middle: how language models use long contexts" (2024).
- `document`: chunks of one document in its order, documents in the order of their first chunk.
- `stable`: for conversations: what the prompt before began with stays in its place, and the rest is appended, so that
  a server which keeps the states of a prompt's beginning reads less anew. It is as `value` for the first prompt, if the
  text would exceed the budget, and if the prompt has a layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from corag.ambient import Ambient
from corag.text.documents import SEPARATOR
from corag.text.units import Span, assemble, ranges_of
from corag.types import Chunk, Selection

PromptOrder = Literal["value", "ends", "document", "stable"]

PREVIOUS: Ambient[Selection | None] = Ambient(None)
"""The selection of the prompt before, which `stable` continues."""


def arranged(chunks: Sequence[Chunk], order: PromptOrder) -> list[int]:
    """Return the positions of chosen chunks, given best first, in the order in which the prompt shows them."""
    rows = list(range(len(chunks)))
    if order == "ends":
        return [*rows[::2], *rows[1::2][::-1]]
    if order == "document":
        ranges = [(ranges_of(chunk) or [(chunk.id, 0, 0)])[0] for chunk in chunks]
        first = {document: row for row, (document, *_) in reversed([*enumerate(ranges)])}
        return sorted(rows, key=lambda row: (first[ranges[row][0]], ranges[row][1]))
    return rows


def continued(before: Selection, chunks: Sequence[Chunk]) -> tuple[str, list[Span]]:
    """Return a text of chosen chunks that begins as the text before did, and the span of each chunk in it.

    Of the text before, all up to the first chunk that is not chosen again stays; the other chunks are assembled behind
    it, first those that it had, too.
    """
    rows = {(chunk.id, chunk.text): row for row, chunk in enumerate(chunks)}
    known = [rows.get((chunk.id, chunk.text)) for chunk in before.chunks]
    spans: dict[int, Span] = {}
    end = 0
    for row, span in zip(known, before.spans, strict=False):
        if row is None:
            break
        spans[row], end = span, span[1]
    again = [row for row in known if row is not None and row not in spans]
    rest = [*again, *(row for row in range(len(chunks)) if row not in spans and row not in again)]
    text = before.text[:end]
    if rest:
        text += SEPARATOR if text else ""
        added, of_rest = assemble([chunks[row] for row in rest])
        spans |= {row: (len(text) + start, len(text) + stop) for row, (start, stop) in zip(rest, of_rest, strict=True)}
        text += added
    return text, [spans[row] for row in range(len(chunks))]


def share_kept(before: str, text: str) -> float:
    """Return the share of a text, in characters, that another one begins with, in [0, 1]."""
    pairs = enumerate(zip(before, text, strict=False))
    kept = next((place for place, (one, other) in pairs if one != other), min(len(before), len(text)))
    return kept / len(before) if before else 0.0
