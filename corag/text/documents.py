"""Documents, and how their text reaches prompts and rerankers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corag.types import Chunk

SEPARATOR = "\n\n"
"""Separates two chunks in a prompt, and in the text that a reranker is given."""


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


def passage(document: Document) -> Chunk:
    """Return a whole document as one chunk, under the document's own id."""
    return Chunk(
        document.id,
        with_title(document.title, document.text),
        {"document": document.id, "title": document.title, "start": 0, "end": len(document.text)},
    )


def citation(chunk: Chunk) -> str:
    """Return where a chunk comes from: `guide.pdf, page 3: Guide > Install`; its id where nothing else is known.

    Document, page, line or anchor, and headings or title are in the metadata that an index keeps.
    """
    known = chunk.metadata
    source = str(known.get("document", chunk.id))
    if "anchor" in known:
        source += f"#{known['anchor']}"
    elif "page" in known:
        source += f", pages {known['page']}-{known['last_page']}" if "last_page" in known else f", page {known['page']}"
    elif "line" in known:
        source += f", line {known['line']}"
    headings = _headings(chunk)
    title = " > ".join(map(str, headings)) if headings else known.get("title", "")
    return f"{source}: {title}" if title else source


def body(chunk: Chunk) -> str:
    """Return a chunk's text without the title before it."""
    return chunk.text.removeprefix(with_title(str(chunk.metadata.get("title") or ""), ""))


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
