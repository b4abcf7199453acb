"""PDF: the text of all pages, with the outline (bookmarks) as headings.

A scanned page has no text; it would need text recognition first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile
from typing import Any

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
# Lines at the edge of a page that may be a running head, and how often it must occur.
_EDGE_LINES = 2
_MIN_REPEATS = 3
_PAGE_NUMBER = re.compile(r"^(?:\d+|[ivxlc]+)\b|\b(?:\d+|[ivxlc]+)(?:\s*(?:/|of)\s*\d+)?\]?$")
# PDFium writes U+FFFE for a hyphen that ends a line. A word is tried from its first character alone.
_BROKEN_WORD = re.compile(r"(?<![\w-])(-*+)(\w[\w-]*)(?:\ufffe|[-\u2010\xad](?=\n))(\n?)(\w+)([^\s\w]*)( ?)")
_WHOLE_WORD = re.compile(r"\w+(?:-\w+)*")


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
    pages = _joined_words(["\n".join(page) for page in _without_running_heads(lines)])
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


def _without_running_heads(pages: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return the lines of each page without running heads, footers and page numbers.

    These are the same, page numbers aside, in the same line of many pages.
    """

    def shape(line: str) -> str:
        return _PAGE_NUMBER.sub("0", line)

    edges = (*range(_EDGE_LINES), *range(-_EDGE_LINES, 0))
    # The edges of a shorter page overlap.
    long = [page for page in pages if len(page) > 2 * _EDGE_LINES]
    counts = Counter((edge, shape(page[edge])) for page in long for edge in edges)
    # Left and right pages may have heads of their own, and a chapter's name may be in them.
    often = max(_MIN_REPEATS, len(pages) // 4)

    def num_repeated(page: Sequence[str], edges: Iterable[int]) -> int:
        return len(list(takewhile(lambda edge: counts[edge, shape(page[edge])] >= often, edges)))

    kept = []
    for page in pages:
        size = min(_EDGE_LINES, len(page))
        first, last = num_repeated(page, range(size)), num_repeated(page, range(-1, -size - 1, -1))
        kept.append(page[first : max(first, len(page) - last)])
    return kept


def _joined_words(pages: Sequence[str]) -> list[str]:
    """Return the pages with words joined that a line's end had broken; the line ends after such a word.

    The hyphen stays if the document writes the word with one elsewhere, and before capitals and numbers.
    """
    words = Counter(word for page in pages for word in _WHOLE_WORD.findall(page))

    def join(match: re.Match[str]) -> str:
        dashes, first, line_end, second, mark, space = match.groups()
        hyphenated, whole = f"{first}-{second}", first + second
        if not second[0].islower() or "-" in first or words[hyphenated] > words[whole]:
            whole = hyphenated
        return f"{dashes}{whole}{mark}{line_end or space}"

    return [_BROKEN_WORD.sub(join, page).replace("\xad", "") for page in pages]


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
