"""In which order the chosen chunks stand in the prompt; what is chosen, and its value, stay as they are.

- `value`: as the selector chose them.
- `ends`: the best first and last, where models read most closely: first, third, fifth, ... sixth, fourth, second. After
  Liu et al., "Lost in the middle: how language models use long contexts" (2024).
- `document`: chunks of one document in its order, documents in the order of their first chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from corag.text.units import ranges_of
from corag.types import Chunk

PromptOrder = Literal["value", "ends", "document"]


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
