"""What printing leaves in a text: words broken at line ends, and the running heads and footers of pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile

# Lines at the edge of a page that may be a running head, and how often it must occur.
_EDGE_LINES = 2
_MIN_REPEATS = 3
_PAGE_NUMBER = re.compile(r"^(?:\d+|[ivxlc]+)\b|\b(?:\d+|[ivxlc]+)(?:\s*(?:/|of)\s*\d+)?\]?$")
# PDFium writes U+FFFE for a hyphen that ends a line. A word is tried from its first character alone.
_BROKEN_WORD = re.compile(
    r"(?<![\w-])(-*+)(\w[\w-]*)(\ufffe|[-\u2010\xad](?=\r?\n))((?:\r?\n[ \t]*)?)(\w+)([^\s\w]*)( ?)"
)
_SPACED_WORD = re.compile(r"\w+(?:-\w+)*")
# LS(1)                    User Commands                    LS(1)
_MANUAL_HEAD = re.compile(r"^(?=.{9,400}$)[ \t]*(\S+\(\w+\))[ \t]{2,}(?:\S.*[ \t]{2,})?\1[ \t]*$", re.MULTILINE)


def running_heads(pages: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Return how many of the first and of the last lines of each page are a running head, footer or page number.

    These are the same, page numbers aside, in the same line of many pages. `pages` has the lines of each page,
    stripped, without empty ones.
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

    counted = []
    for page in pages:
        size = min(_EDGE_LINES, len(page))
        first = num_repeated(page, range(size))
        counted.append((first, min(num_repeated(page, range(-1, -size - 1, -1)), len(page) - first)))
    return counted


def without_running_heads(text: str) -> str:
    """Return a plain text whose running heads are empty lines: of pages that form feeds end, and of manual pages."""
    blank: list[tuple[int, int]] = []
    pages = [_lines(text, *page.span()) for page in re.finditer(r"[^\f]+", text)] if "\f" in text else []
    heads = running_heads([[text[start:end].strip() for start, end in page] for page in pages])
    for spans, (first, last) in zip(pages, heads, strict=True):
        blank += spans[:first] + spans[len(spans) - last :]
    manuals = [match.span() for match in _MANUAL_HEAD.finditer(text)]
    for head, (stop, _) in pairwise([*manuals, (len(text), 0)]):
        lines = _lines(text, head[1], stop)
        # GNU coreutils 9.1        September 2022                   LS(1)
        blank += [head, *(line for line in lines[-1:] if len(re.split(r"\s{2,}", text[slice(*line)].strip())) == 3)]
    parts, end = [], 0
    for start, stop in sorted(blank):
        parts.append(text[end:start])
        end = max(end, stop)
    return "".join([*parts, text[end:]])


def _lines(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of the lines with text between two offsets, without their line ends."""
    return [match.span() for match in re.compile(r"[^\r\n]+").finditer(text, start, end) if match[0].strip()]


def joined_words(pages: Sequence[str], *, typed: bool = False) -> list[str]:
    """Return texts with the words whole that a line's end had broken; the line ends after such a word.

    The hyphen stays if the document writes the word with one elsewhere, and before capitals and numbers; in a `typed`
    text, where it may be the author's own, unless the document has the word without one elsewhere.
    """
    words = Counter(word for page in pages for word in _SPACED_WORD.findall(page))

    def join(match: re.Match[str]) -> str:
        dashes, first, hyphen, line_end, second, mark, space = match.groups()
        hyphenated, whole = f"{first}-{second}", first + second
        keep = words[hyphenated] > words[whole] or (typed and hyphen == "-" and not words[whole])
        if not second[0].islower() or "-" in first or keep:
            whole = hyphenated
        return f"{dashes}{whole}{mark}{line_end or space}"

    return [_BROKEN_WORD.sub(join, page).replace("\xad", "") for page in pages]
