"""The text of a file with its structure: sections under headings, blocks that belong together, pages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Block(NamedTuple):
    """A paragraph, list item, code block or table; it reaches to the next block of its section.

    Attributes:
        start: Offset of its first character.
        kind: How it is cut where it does not fit a chunk: text by sentences, code by lines, a table by rows.
        header_end: Offset after a table's header rows.
    """

    start: int
    kind: Literal["text", "code", "table"] = "text"
    header_end: int = 0


class Heading(NamedTuple):
    """A heading and where it stands.

    Attributes:
        level: 1 for the highest.
        text: Its words, without markup.
        start: Offset of its first character.
        end: Offset of what follows it.
    """

    level: int
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Section:
    """What stands between two headings.

    Attributes:
        headings: Path of headings that leads here, the document's title first.
        start: Offset of its heading; of its text where it has none.
        body: Offset after its heading.
        end: Offset of the next heading, or of the end.
        blocks: Blocks of its body, in order; empty if only white space follows the heading.
        anchor: Name by which a link leads to its heading.
    """

    headings: tuple[str, ...]
    start: int
    body: int
    end: int
    blocks: tuple[Block, ...]
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class FileText:
    """What a file says.

    Attributes:
        text: The text that spans refer to: of Markdown and plain text the file's own characters, line ends included;
            of HTML and DOCX the Markdown that they are turned into; of PDF the text of all pages.
        sections: Its sections, in order.
        pages: Offset at which each page begins; empty for what has no pages.
        lines: True if a line of `text` is a line of the file.
        guessed_encoding: Encoding of a text that is not in Unicode.
    """

    text: str
    sections: tuple[Section, ...]
    pages: tuple[int, ...] = ()
    lines: bool = False
    guessed_encoding: str = ""

    def page(self, offset: int) -> int:
        """Return the page of a character, from 1."""
        return max(1, bisect_right(self.pages, offset))


def sections_of(
    text: str, headings: Sequence[Heading], blocks: Iterable[Block], title: str, *, start: int = 0
) -> tuple[Section, ...]:
    """Return the sections of a text.

    A heading of level 1 that comes first and is the only one is the document's title; otherwise `title` leads
    every path.

    Args:
        text: The text.
        headings: Its headings, in order.
        blocks: Its blocks, in order.
        title: Title of the document as its file gives it, or the file's name.
        start: Offset at which the text begins, after front matter.
    """
    levels = [heading.level for heading in headings]
    titled = levels[:1] == [1] and levels.count(1) == 1
    path: list[tuple[int, str]] = [] if titled else [(0, title)]
    ends = [heading.start for heading in headings] + [len(text)]
    listed = list(blocks)
    begun = [block.start for block in listed]
    used = 0
    found = []
    for place, heading in enumerate([Heading(0, "", start, start), *headings]):
        if heading.level:
            path = [(level, name) for level, name in path if level < heading.level] + [(heading.level, heading.text)]
        first, used = used, bisect_left(begun, ends[place])
        own = listed[first:used]
        if heading.level or own:
            named = [name for _, name in path if name] or [title]
            # The file's name often is the title again.
            names = tuple(named[1:] if [one.casefold() for one in named[:2]] == [title.casefold()] * 2 else named)
            found.append(Section(names, heading.start, heading.end, ends[place], tuple(own)))
    return tuple(found)


def letters(text: str) -> str:
    """Return what two spellings of a heading have in common: its letters and digits, in lower case."""
    return "".join(character for character in text.casefold() if character.isalnum())
