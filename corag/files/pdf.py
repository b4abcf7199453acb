"""PDF: the text of all pages, with the outline (bookmarks) as headings.

A scanned page has no text; it would need text recognition first.
"""

from __future__ import annotations

import re
from itertools import accumulate
from pathlib import PurePath
from typing import Any

from corag.files.lines import joined_words, shortened_rules, without_running_heads
from corag.files.markdown import Block, FileText, Heading, letters, line_ends, sections_of
from corag.files.read import UnreadableFileError

# By error code of PDFium.
_REASONS = {"4": "encrypted; save it without a password", "5": "its encryption is not supported"}
_LIGATURES = {
    0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st",
    0: None, 0xFFFF: None,
}  # fmt: skip
# Dots that lead to the page number in a table of contents cost a token each.
_DOT_LEADERS = re.compile(r"(?: ?\.){5,}")
_MAX_TITLE_LINES = 3
_TITLE_PAGES = 3
"""Pages that have to show a title of one word, or with the ending of a file: programs write such titles."""


def read_pdf(data: bytes, name: str) -> FileText:
    """Return the text of a PDF; see `read_file`.

    Words that are broken at the end of a line are joined, ligatures are written in letters, and running heads and
    page numbers, which most pages repeat, are left out.
    """
    import pypdfium2 as pdfium  # type: ignore[import-untyped]

    try:
        with pdfium.PdfDocument(data) as document:
            pages = [_page_text(document, number) for number in range(len(document))]
            title = document.get_metadata_value("Title")
            outline = [_bookmark(item) for item in document.get_toc(max_depth=6)]
    except pdfium.PdfiumError as error:
        code = str(getattr(error, "err_code", ""))
        raise UnreadableFileError(_REASONS.get(code, f"damaged: {str(error).rstrip('.')}")) from error
    pages = without_running_heads(["\n".join(filter(None, map(str.strip, page.split("\n")))) for page in pages])
    pages = joined_words([page.strip("\n") for page in pages])
    parts = [f"{page}\n".replace("\ufffe\n", "-").replace("\ufffe", "-") if page else "" for page in pages]
    starts, text = [0, *accumulate(map(len, parts))][:-1], "".join(parts)
    headings = _headings(text, starts, outline)
    ends = [0, *(heading.end for heading in headings)]
    begins = [*(heading.start for heading in headings), len(text)]
    blocks = [Block(start) for start, end in zip(ends, begins, strict=True) if text[start:end].strip()]
    known = " ".join(title.split()) if _is_title(title, pages) else name
    return FileText(text, sections_of(text, headings, blocks, known), tuple(starts))


def _is_title(title: str, pages: list[str]) -> bool:
    by_program = len(title.split()) < 2 or PurePath(title).suffix[1:].isalpha()
    return bool(title.strip()) and (not by_program or letters(title) in letters("".join(pages[:_TITLE_PAGES])))


def _page_text(document: Any, number: int) -> str:
    page = document[number]
    try:
        text: str = page.get_textpage().get_text_range()
    finally:
        page.close()
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_LIGATURES)
    return shortened_rules(_DOT_LEADERS.sub(" …", text))


def _bookmark(item: Any) -> tuple[int, str, int | None]:
    """Return level, title and page (from 0) of an entry of the outline."""
    target = item.get_dest()
    return item.level + 1, " ".join(item.get_title().split()), None if target is None else target.get_index()


def _headings(text: str, starts: list[int], outline: list[tuple[int, str, int | None]]) -> list[Heading]:
    """Return the entries of the outline at their lines; at the top of the page where no line reads like them."""
    headings: list[Heading] = []
    reached = 0
    for level, title, page in outline:
        if page is None or not 0 <= page < len(starts) or not title:
            continue
        begin = max(reached, starts[page])
        end = starts[page + 1] if page + 1 < len(starts) else len(text)
        start, reached = _line_of(title, text, begin, end) or (begin, begin)
        headings.append(Heading(level, title, start, reached))
    return headings


def _line_of(title: str, text: str, begin: int, end: int) -> tuple[int, int] | None:
    """Return the span of the lines that read like a title, with or without a number before it: `Chapter 2.1 Use`."""
    wanted = letters(title)
    starts = [begin, *line_ends(text[begin:end], begin)]
    for number, start in enumerate(starts[:-1]):
        for stop in starts[number + 1 :][:_MAX_TITLE_LINES]:
            words = list(filter(None, map(letters, text[start:stop].split())))
            line = "".join(words)
            if line.endswith(wanted) and _is_numbering(line.removesuffix(wanted), words):
                return start, stop
    return None


def _is_numbering(before: str, words: list[str]) -> bool:
    """Return whether what a line has before a title is a number, alone or behind one word."""
    first = list(accumulate(words[:2]))
    number = words[first.index(before)] if before in first else ""
    roman = number and not number.strip("ivxlc")
    return not before or before.isdigit() or bool(roman) or len(number) == 1 or any(map(str.isdigit, number))
