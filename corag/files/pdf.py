"""PDF: the text of all pages, with the outline (bookmarks) as headings.

A scanned page has no text; it would need text recognition first.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

from corag.files.lines import joined_words, running_heads
from corag.files.markdown import Block, FileText, Heading, letters, sections_of
from corag.files.read import UnreadableFileError
from corag.optional import require

# By error code of PDFium.
_REASONS = {"4": "encrypted; save it without a password", "5": "its encryption is not supported"}
_LIGATURES = {
    0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st",
    0: None, 0xFFFF: None,
}  # fmt: skip
_LEFT_OVER = re.compile(r"\ufffe\n?")
# Dots that lead to the page number in a table of contents cost a token each.
_DOT_LEADERS = re.compile(r"(?: ?\.){5,}")
_TITLE_BY_PROGRAM = re.compile(r"microsoft \w+ - .*|untitled.*|title|.*\.(docx?|tex|dvi|indd|rtf|odt|pptx?|ps)", re.I)
_MAX_TITLE_LINES = 3
_NUMBER = re.compile(r"(?:chapter|section|part|appendix)?(?:\d{0,6}|[a-z]\d{0,4}|[ivxlc]{1,6})")


def read_pdf(data: bytes, name: str) -> FileText:
    """Return the text of a PDF; see `read_file`.

    Words that are broken at the end of a line are joined, ligatures are written in letters, and running heads and
    page numbers, which most pages repeat, are left out.
    """
    pdfium = require("pypdfium2", "documents")
    try:
        with pdfium.PdfDocument(data) as document:
            pages = [_page_text(document, number) for number in range(len(document))]
            title = document.get_metadata_value("Title")
            outline = [_bookmark(item) for item in document.get_toc(max_depth=6)]
    except pdfium.PdfiumError as error:
        code = str(getattr(error, "err_code", ""))
        raise UnreadableFileError(_REASONS.get(code, f"damaged: {str(error).rstrip('.')}")) from error
    lines = [[line.strip() for line in page.split("\n") if line.strip()] for page in pages]
    edges = zip(lines, running_heads(lines), strict=True)
    pages = joined_words(["\n".join(page[first : len(page) - last]) for page, (first, last) in edges])
    parts = [f"{_LEFT_OVER.sub('-', page)}\n" if page else "" for page in pages]
    starts, text = [0, *accumulate(map(len, parts))][:-1], "".join(parts)
    headings = _headings(text, starts, outline)
    ends = [0, *(heading.end for heading in headings)]
    begins = [*(heading.start for heading in headings), len(text)]
    blocks = [Block(start) for start, end in zip(ends, begins, strict=True) if text[start:end].strip()]
    title = " ".join(title.split())
    known = name if len(title) < 3 or _TITLE_BY_PROGRAM.fullmatch(title) else title
    return FileText(text, sections_of(text, headings, blocks, known), tuple(starts))


def _page_text(document: Any, number: int) -> str:
    page = document[number]
    try:
        text: str = page.get_textpage().get_text_range()
    finally:
        page.close()
    return _DOT_LEADERS.sub(" …", text.replace("\r\n", "\n").replace("\r", "\n").translate(_LIGATURES))


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
    """Return the span of the lines that read like a title, with or without a number before it."""
    wanted = letters(title)
    lines = [match.span() for match in re.finditer(r"[^\n]+\n?", text[begin:end])]
    for number, (start, _) in enumerate(lines):
        for _, stop in lines[number : number + _MAX_TITLE_LINES]:
            line = letters(text[begin + start : begin + stop])
            if line.endswith(wanted) and _NUMBER.fullmatch(line.removesuffix(wanted)):
                return begin + start, begin + stop
    return None
