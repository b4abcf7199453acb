"""What printing leaves in a text: words broken at line ends, and the running heads and footers of pages."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile

# Lines at the edge of a page that may be a running head, and how often it must occur.
_EDGE_LINES = 2
_MIN_REPEATS = 3
_NEAR = 6
"""Pages among which the name of a chapter has to occur so often."""
# PDFium writes U+FFFE for a hyphen that ends a line. A word is tried from its first character alone.
_BROKEN_WORD = re.compile(
    r"(?<![\w-])(-*+)(\w[\w-]*)(\ufffe|[-\u2010\xad](?=\r?\n))((?:\r?\n[ \t]*)?)(\w+)([^\s\w]*)( ?)"
)
# A rule, or the underline of a heading: each sign may be a token. Bars are the empty cells of a row.
_RULE = re.compile(r"([^\w\s|]|_)\1{9,}")
_SPACED_WORD = re.compile(r"\w+(?:-\w+)*")


def shortened_rules(text: str) -> str:
    """Return a text with three signs in place of ten or more of the same, as in rules and below headings."""
    return _RULE.sub(r"\1\1\1", text)


def without_running_heads(pages: Sequence[str]) -> list[str]:
    """Return pages with empty lines in place of running heads, footers and page numbers.

    These are the same, page numbers aside, in the same line of a quarter of all pages. Such a line of three pages near
    each other, as the name of a chapter or the header of a table, stays on the first of them.
    """
    split = [page.split("\n") for page in pages]
    filled = [[number for number, line in enumerate(lines) if line.strip()] for lines in split]
    texts = [[lines[number].strip() for number in numbers] for lines, numbers in zip(split, filled, strict=True)]
    for lines, numbers, (first, last) in zip(split, filled, _running_heads(texts), strict=True):
        for number in (*numbers[:first], *numbers[len(numbers) - last :]):
            lines[number] = ""
    return ["\n".join(lines) for lines in split]


def _running_heads(pages: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Return how many of the first and of the last lines of each page are no text of it."""
    on_pages: dict[tuple[int, str], list[int]] = defaultdict(list)
    for number, page in enumerate(pages):
        if len(page) > 2 * _EDGE_LINES:  # the edges of a shorter page overlap
            for edge in range(-_EDGE_LINES, _EDGE_LINES):
                on_pages[edge, _without_numbers(page[edge])].append(number)
    # Left and right pages may have heads of their own.
    often = max(_MIN_REPEATS, len(pages) // 4)
    stays_on: dict[tuple[int, str], int | None] = {}
    for line, numbers in on_pages.items():
        if len(numbers) >= often:
            stays_on[line] = None
        elif any(last - first < _NEAR for first, last in zip(numbers, numbers[_MIN_REPEATS - 1 :], strict=False)):
            stays_on[line] = numbers[0]

    def num_repeated(number: int, page: Sequence[str], edges: Iterable[int]) -> int:
        lines = ((edge, _without_numbers(page[edge])) for edge in edges)
        return len(list(takewhile(lambda line: stays_on.get(line, number) != number, lines)))

    counted = []
    for number, page in enumerate(pages):
        size = min(_EDGE_LINES, len(page))
        first = num_repeated(number, page, range(size))
        counted.append((first, min(num_repeated(number, page, range(-1, -size - 1, -1)), len(page) - first)))
    return counted


def _without_numbers(line: str) -> str:
    """Return a line with 0 for a page number at its beginning or end, as in `3 of 9`; headings have other numbers."""
    if line.startswith("#"):
        return line
    words = line.split()
    ends = {0, len(words) - 1, *([len(words) - 3] if len(words) > 2 and _is_number(words[-1]) else [])}
    return " ".join("0" if number in ends and _is_number(word) else word for number, word in enumerate(words))


def _is_number(word: str) -> bool:
    digits = word.strip("[](){}|.,-\u2013\u2014").replace("/", "")
    return digits.isdigit() or (digits != "" and not digits.strip("ivxlc"))


def without_manual_heads(text: str) -> str:
    """Return a text with empty lines in place of the heads and feet of manual pages, as they are printed."""
    lines = text.split("\n")
    heads = []
    for number, line in enumerate(lines):
        # LS(1)                    User Commands                    LS(1)
        first, *others = _columns(line) or [""]
        if others and len(others) < 3 and others[-1] == first and first.endswith(")") and "(" in first:
            heads.append(number)
    for head, stop in pairwise([*heads, len(lines)]):
        lines[head] = ""
        last = next((number for number in range(stop - 1, head, -1) if lines[number].strip()), head)
        # GNU coreutils 9.1        September 2022                   LS(1)
        if len(_columns(lines[last])) == 3:
            lines[last] = ""
    return "\n".join(lines)


def _columns(line: str) -> list[str]:
    return [column.strip() for column in line.split("  ") if column.strip()]


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
