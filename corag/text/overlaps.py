"""Texts of which one begins with the end of another, as splitters with an overlap make them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from corag.ambient import watched

LEAST_SHARED, MOST_SHARED = 24, 4096
"""Characters that overlapping texts have in common."""

_WORD = re.compile(r"(?<!\S)\S")


def places_of(texts: Sequence[str]) -> dict[int, tuple[int, int]]:
    """Return the places of texts that overlap, by row: the first text of their document, and where in it they begin.

    One follows another if it begins with what that ends with, from the start of a word on, or is all within it.
    """
    beginnings = {text[:LEAST_SHARED]: row for row, text in reversed(list(enumerate(texts)))}
    follows: dict[int, tuple[int, int]] = {}  # the text before it, and where in that it begins
    for row, text in watched(enumerate(texts), 16):
        for word in _WORD.finditer(text, max(0, len(text) - MOST_SHARED), max(0, len(text) - LEAST_SHARED + 1)):
            start = word.start()
            other = beginnings.get(text[start : start + LEAST_SHARED], row)
            if not start or other == row or other in follows:
                continue
            if texts[other].startswith(text[start:]) or text.startswith(texts[other], start):
                follows[other] = row, start
    places: dict[int, tuple[int, int]] = {}
    for row in follows:
        path: dict[int, int] = {}
        at, offset = row, 0
        while at in follows and at not in places and at not in path:
            path[at] = offset
            at, start = follows[at]
            offset += start
        if at not in path:  # else it is a circle, of texts that repeat themselves
            first, before = places.setdefault(at, (at, 0))
            places |= {one: (first, before + offset - passed) for one, passed in path.items()}
    return places
