"""Which sentences belong to which passages, and the order in which they stand."""

from __future__ import annotations

from collections.abc import Sequence

from corag.selectors.problem import SelectionProblem
from corag.text.units import UnitChunk
from corag.types import Chunk, Order


def units_of(problem: SelectionProblem, passages: Sequence[int]) -> Order:
    """Return the units of some passages of a problem: passage by passage as given, those of each in its order.

    A unit that several passages share, because they overlap or repeat it, is set up once; it is a unit of each.

    Args:
        problem: What is chosen from: units, or whole passages.
        passages: Indices of `problem.passages`.
    """
    given = [problem.passages.chunks[index] for index in passages]
    places = {chunk.id: place for place, chunk in reversed([*enumerate(given)])}
    found = []
    for index, unit in enumerate(problem.chunks):
        place = places.get(unit.source.id if isinstance(unit, UnitChunk) else unit.id)
        if place is None:
            place = next((place for place, chunk in enumerate(given) if _holds(chunk, unit)), None)
        if place is not None:
            found.append((place, *_position(unit), index))
    return tuple(index for *_, index in sorted(found))


def _holds(chunk: Chunk, unit: Chunk) -> bool:
    """Return whether a passage with the title of a unit's source has its words."""
    if not isinstance(unit, UnitChunk):
        return False
    source, (start, end) = unit.source.text, unit.span
    return chunk.text.startswith(source[: unit.body]) and source[start:end] in chunk.text[unit.body :]


def _position(unit: Chunk) -> tuple[str, int]:
    return (unit.document, unit.span[0] + unit.shift) if isinstance(unit, UnitChunk) else (unit.id, 0)
