"""Documents, how their text reaches prompts and rerankers, and which texts are parts of one document."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from corag.ambient import watched
from corag.types import Chunk

SEPARATOR = "\n\n"
"""Separates two chunks in a prompt, and in the text that a reranker is given."""
_DOCUMENTS = ("document", "source", "file_path", "file_name", "url", "source_id")
"""Fields of metadata that name the document, as frameworks write them."""
LEAST_SHARED, MOST_SHARED = 24, 4096
"""Characters that overlapping texts have in common."""

# Behind space or signs, and in scripts that write no words apart (Thai and all behind it) everywhere.
_WORD = re.compile(r"(?<!\w)\S|[\u0e00-\U0010ffff]")
_MOST_ALIKE = 4
"""Texts with one beginning that are tried."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text to be indexed.

    Attributes:
        id: Unique name.
        text: The text that spans refer to.
        title: Put before every chunk's text (title, newline, text), or empty.
    """

    id: str
    text: str
    title: str = ""


def with_title(title: str, text: str) -> str:
    """Return the text as reranker and reader see it: title, newline, text."""
    return f"{title}\n{text}" if title else text


def part_of(document: Document, start: int, end: int) -> Chunk:
    """Return the characters between two offsets of a document as a chunk, named `docid#start-end`."""
    metadata = {"document": document.id, "title": document.title, "start": start, "end": end}
    return Chunk(f"{document.id}#{start}-{end}", with_title(document.title, document.text[start:end]), metadata)


def passage(document: Document) -> Chunk:
    """Return a whole document as one chunk, under the document's own id."""
    return replace(part_of(document, 0, len(document.text)), id=document.id)


def document_of(chunk: Chunk) -> str:
    """Return the document that a chunk's metadata name; empty if they name none."""
    return next((str(known) for name in _DOCUMENTS if (known := chunk.metadata.get(name)) is not None), "")


def citation(chunk: Chunk) -> str:
    """Return where a chunk comes from: `guide.pdf, page 3: Guide > Install`; its id where nothing else is known.

    Document, page, line or anchor, and headings or title are in the metadata, as an index or a framework keeps them.
    """
    known = {name: value for name, value in chunk.metadata.items() if value is not None}
    source = document_of(chunk) or chunk.id
    if "anchor" in known:
        source += f"#{known['anchor']}"
    elif "page" in known:
        source += f", pages {known['page']}-{known['last_page']}" if "last_page" in known else f", page {known['page']}"
    elif "line" in known:
        source += f", line {known['line']}"
    headings = _headings(chunk)
    title = " > ".join(map(str, headings)) if headings else known.get("title", "")
    return f"{source}: {title}" if title else source


def body_of(chunk: Chunk) -> int:
    """Return where the text of a chunk begins, behind its title."""
    title_line = with_title(str(chunk.metadata.get("title") or ""), "")
    return len(title_line) if chunk.text.startswith(title_line) else 0


def body(chunk: Chunk) -> str:
    """Return a chunk's text without the title before it."""
    return chunk.text[body_of(chunk) :]


def content(chunk: Chunk) -> tuple[str, str]:
    """Return what a chunk says: the heading right above it, or its title, and its text with single spaces.

    Pages of one manual often repeat a section below headings of their own; chunks of it say the same.
    """
    heading = [chunk.metadata.get("title") or "", *_headings(chunk)][-1]
    return str(heading), " ".join(body(chunk).split())


def _headings(chunk: Chunk) -> Sequence[object]:
    """Return the headings in a chunk's metadata, which may be a user's own and hold anything; none if they are none."""
    headings = chunk.metadata.get("headings")
    return headings if isinstance(headings, list | tuple) else ()


def places_of(texts: Sequence[str]) -> dict[int, tuple[int, int]]:
    """Return the places of texts that overlap, by row: the first text of their document, and where in it they begin.

    One follows another if it begins with what that ends with, from the start of a word on, or is all within it. Of
    several that begin so, as below a header that repeats, only the first does: they would be in one place.
    """
    beginnings: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        beginnings.setdefault(text[:LEAST_SHARED], []).append(row)
    follows: dict[int, tuple[int, int]] = {}  # the text before it, and where in that it begins
    followed: set[int] = set()
    for row, text in watched(enumerate(texts), 16):
        for word in _WORD.finditer(text, max(0, len(text) - MOST_SHARED), max(0, len(text) - LEAST_SHARED + 1)):
            start = word.start()
            for other in beginnings.get(text[start : start + LEAST_SHARED], ())[:_MOST_ALIKE] if start else ():
                if other == row or other in follows:
                    continue
                is_within = text.startswith(texts[other], start)
                if is_within or (row not in followed and texts[other].startswith(text[start:])):
                    follows[other] = row, start
                    followed |= set() if is_within else {row}
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
