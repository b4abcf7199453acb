"""In which order the chosen chunks stand in the prompt; what is chosen, and its value, stay as they are.

- `value`: as the selector chose them.
- `ends`: the best first and last, where models read most closely: first, third, fifth, ... sixth, fourth, second. After
  Liu et al., "Lost in the middle: how language models use long contexts" (2024).
- `document`: chunks of one document in its order, documents in the order of their first chunk.
- `stable`: for conversations: what was sent stays where it was and new chunks are appended, so that a server that keeps
  the states of a prompt's beginning reads less anew. Three quarters of the budget are chosen for the new question; of
  the prompt before stays as long a beginning as fits beside it. The first prompt, and one with a layout, is as with
  `value`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from os.path import commonprefix
from typing import Literal

from corag.ambient import Ambient
from corag.text.documents import SEPARATOR
from corag.text.units import assemble, disjoint, ranges_of
from corag.types import Chunk, Selection

PromptOrder = Literal["value", "ends", "document", "stable"]

PREVIOUS: Ambient[Selection | None] = Ambient(None)
"""The selection of the prompt before, which `stable` continues."""
NEW_SHARE = 0.75
"""Share of the budget that `stable` chooses anew; with half of it, evidence falls by .02."""


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


def continued(before: Selection, chosen: Selection, budget_tokens: int, count: Callable[[str], int]) -> Selection:
    """Return what was chosen behind as much of the beginning of the prompt before as the budget allows.

    Its value is that of what was chosen for this question. A chunk that stays has no similarity to it, unless it was
    chosen again.
    """
    key = attrgetter("id", "text")
    noted = dict(zip(map(key, chosen.chunks), chosen.trace.chunk_similarities, strict=False))
    for size in range(len(before), -1, -1):
        kept = before.chunks[:size]
        there = set(map(key, kept))
        rest = disjoint(chosen.chunks, kept)
        new = [row for row, chunk in enumerate(chosen.chunks) if key(chunk) not in there and rest[row] is not None]
        text = before.text[: max((end for _, end in before.spans[:size]), default=0)]
        text += SEPARATOR if text and new else ""
        added, spans = assemble([part for row in new if (part := rest[row]) is not None])
        if (cost := count(text + added)) <= budget_tokens:
            break
    same = len(commonprefix([before.text, text + added]))  # noqa: RUF071 - characters are meant
    trace = replace(
        chosen.trace,
        chunk_tokens=[*before.trace.chunk_tokens[:size], *(chosen.trace.chunk_tokens[row] for row in new)],
        chunk_similarities=[
            *(noted.get(key(chunk)) for chunk in kept), *(chosen.trace.chunk_similarities[row] for row in new)
        ],
        chunk_values=None,
        details={**chosen.trace.details, "prefix_kept": same / len(before.text) if before.text else 0.0},
    )  # fmt: skip
    return replace(
        chosen,
        chunks=(*kept, *(chosen.chunks[row] for row in new)),
        text=text + added,
        cost_tokens=cost,
        budget_tokens=budget_tokens,
        trace=trace,
        spans=(*before.spans[:size], *((len(text) + start, len(text) + end) for start, end in spans)),
    )
