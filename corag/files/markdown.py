"""The text of a file with its structure: sections under headings, and blocks that belong together."""

from __future__ import annotations

import io
import tomllib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from itertools import accumulate, chain, groupby, pairwise, repeat, zip_longest
from math import isfinite
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import yaml  # type: ignore[import-untyped]
from markdown_it import MarkdownIt
from markdown_it.token import Token

from corag.files.lines import shortened_rules
from corag.files.navigation import HEADINGS, is_contents, is_row_of_links

# Inline markup matters in headings alone.
_BLOCKS = MarkdownIt("commonmark").enable("table").disable("inline")
_INLINE = MarkdownIt("commonmark")
_LEAVES = {"paragraph_open", "heading_open", "fence", "code_block", "table_open", "html_block"}

_MAX_ROW = 4096
"""Characters of a paragraph that may be a row of links, addresses included."""
_MAX_HEADER = 240
"""Characters of a table's header, which is repeated above its rows."""
MAX_HEADING = 300
"""Characters of a heading in the paths of the sections below it, each of which has all of them."""

_MAX_FRONT = 2**14
"""Characters of front matter: fields of YAML or TOML at the top of a file, as site generators write them."""
_MAX_FIELDS = 32
_MAX_FIELD = 300
"""Characters of a field: each chunk of the file has them all."""
_ENDS = {"---": ("---", "..."), "+++": ("+++",)}
"""First line of front matter -> what its last one may be."""


class Block(NamedTuple):
    """A paragraph, list item, code block or table; it reaches to the next block of its section."""

    start: int
    kind: Literal["text", "code", "table"] = "text"
    """How it is cut if it does not fit a chunk: text by sentences, code by lines, a table by rows."""
    header_end: int = 0
    """Offset after a table's header rows."""


class Heading(NamedTuple):
    """A heading: its level (1 is the highest), its words without markup, and its offsets."""

    level: int
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FileSection:
    """The text from one heading to the next.

    Attributes:
        headings: Path of headings that leads here, the document's title first.
        start: Offset of its heading; of its text if it has none.
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
    """The text of a file with its structure.

    Attributes:
        text: The text that spans refer to: of Markdown the file's own characters, of HTML and DOCX their Markdown.
        sections: Its sections, in order.
        pages: Offset at which each page begins; empty without pages.
        lines: True if a line of `text` is a line of the file.
        line_numbers: Where it is not, offsets of `text`, each with the line of the file that begins there; empty if not
            known.
        fields: What the file says about itself: name -> text, number, truth value, or a list of these.
    """

    text: str
    sections: tuple[FileSection, ...]
    pages: tuple[int, ...] = ()
    lines: bool = False
    line_numbers: tuple[tuple[int, int], ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)

    def page(self, offset: int) -> int:
        """Return the page of a character, from 1."""
        return max(1, bisect_right(self.pages, offset))

    def line(self, offset: int) -> int:
        """Return the line of the file of a character, where `line_numbers` are known."""
        return self.line_numbers[bisect_right(self.line_numbers, offset, key=itemgetter(0)) - 1][1]


def sections_of(
    text: str, headings: Sequence[Heading], blocks: Iterable[Block], title: str, *, start: int = 0
) -> tuple[FileSection, ...]:
    """Return the sections of a text, which begins at `start`, after front matter.

    A heading of level 1 that comes first and is the only one is the document's title; otherwise `title` leads
    every path.
    """
    title, levels = _clipped(title), [heading.level for heading in headings]
    titled = levels[:1] == [1] and levels.count(1) == 1
    path: list[tuple[int, str]] = [] if titled else [(0, title)]
    ends = [heading.start for heading in headings] + [len(text)]
    remaining = deque(blocks)
    sections = []
    for heading, end in zip([Heading(0, "", start, start), *headings], ends, strict=True):
        if heading.level:
            path = [(level, name) for level, name in path if level < heading.level]
            path.append((heading.level, _clipped(heading.text)))
        own = []
        while remaining and remaining[0].start < end:
            own.append(remaining.popleft())
        if heading.level or own:
            names = [name for _, name in path if name] or [title]
            # The file's name often is the title again.
            if [name.casefold() for name in names[:2]] == [title.casefold()] * 2:
                del names[0]
            sections.append(FileSection(tuple(names), heading.start, heading.end, end, tuple(own)))
    return tuple(sections)


def _clipped(heading: str) -> str:
    return heading if len(heading) <= MAX_HEADING else heading[: MAX_HEADING - 1].rstrip() + "…"


class TextBuilder:
    """Collects the headings and blocks of a document, in order; empty ones are left out."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._length = 0
        self._headings: list[Heading] = []
        self._blocks: list[Block] = []
        self._pages: list[int] = []
        self._lines: list[tuple[int, int]] = []

    def page(self) -> None:
        """Begin a page, such as a slide."""
        self._pages.append(self._length)

    def line(self, number: int) -> None:
        """Say which line of the file comes next."""
        self._lines.append((self._length, number))

    def heading(self, level: int, words: str) -> None:
        """Add a heading; level 1 is the highest. Without words it ends the section before it alone."""
        start = self._length
        if words := " ".join(words.split()):
            self._add(words)
        self._headings.append(Heading(level, words, start, self._length))

    def block(self, text: str, kind: Literal["text", "code", "table"] = "text", *, header: int = 0) -> None:
        """Add a block; the first `header` characters of a table are its header rows."""
        if text := text.rstrip():
            start = self._length
            self._add(text)
            self._blocks.append(Block(start, kind, start + header if header else 0))

    def sheet(self, rows: list[list[str]], numbers: Sequence[int] = ()) -> None:
        """Add the rows of a spreadsheet, all with text, as a table; those above the names of its columns as a block.

        `numbers` are their lines in the file, if it has lines.
        """
        num_notes = _notes_above(rows)
        for number in numbers[:1]:
            self.line(number)
        self.block("\n".join(" ".join(filter(None, row)) for row in rows[:num_notes]))
        self.table(rows[num_notes:], numbers[num_notes:])

    def table(self, rows: list[list[str]], numbers: Sequence[int] = ()) -> None:
        """Add a table in Markdown whose first row is its header; rows and columns without text are left out."""
        lines = table_lines(rows)
        if lines and len(lines[0]) > _MAX_HEADER:
            self._records(rows, numbers)
        elif lines:
            starts = list(accumulate(map(len, lines), initial=self._length))
            del starts[1]  # the rule below the header is in no file
            self._lines += zip(starts, numbers, strict=False)
            self.block("".join(lines), "table", header=len(lines[0]) + len(lines[1]))

    def _records(self, rows: list[list[str]], numbers: Sequence[int]) -> None:
        """Add a table whose header does not fit beside its rows: each row under its first cell, a line for a column."""
        level = self._headings[-1].level + 1 if self._headings else 2
        names, *others = ([" ".join(cell.split()) for cell in row] for row in rows if any(map(str.strip, row)))
        for row, number in zip_longest(others, numbers[1:]):
            if number is not None:
                self.line(number)
            self.heading(level, next(filter(None, row)))
            named = zip(row, chain(names, repeat("")), strict=False)
            self.block("\n".join(f"{name}: {cell}" for cell, name in named if cell))

    def file(self, title: str) -> FileText:
        """Return the document; `title` leads every path of headings unless its only first-level heading comes first."""
        text = "".join(self._text)
        sections = sections_of(text, self._headings, self._blocks, title)
        return FileText(text, sections, tuple(self._pages), line_numbers=tuple(self._lines))

    def _add(self, text: str) -> None:
        self._text.append(f"{text}\n\n")
        self._length += len(text) + 2


def _notes_above(rows: Sequence[Sequence[str]]) -> int:
    """Return how many rows are above the names of the columns: if the first has one cell, those before a whole one."""
    filled = [sum(map(bool, row)) for row in rows]
    return filled.index(max(filled)) if filled and filled[0] == 1 and max(filled) > 2 else 0


def table_lines(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table in Markdown whose first row is its header; rows without text, and empty cells at an end, go."""
    filled = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows if any(map(str.strip, row))]
    for row in filled:
        while not row[-1]:
            row.pop()
    width = max(map(len, filled), default=0)
    lines = [f"| {' | '.join(row)} |\n" for row in filled]
    if lines:
        lines[:1] = [f"| {' | '.join(filled[0] + [''] * (width - len(filled[0])))} |\n", "|" + " --- |" * width + "\n"]
    return lines


def fenced(code: str) -> str:
    """Return code between marks that it does not have."""
    fence = "```"
    while fence in code:
        fence *= 2
    return f"{fence}\n{code.strip(chr(10)).rstrip()}\n{fence}"


def letters(text: str) -> str:
    """Return what two spellings of a heading have in common: its letters and digits, in lower case."""
    return "".join(character for character in text.casefold() if character.isalnum())


def read_markdown(
    text: str,
    name: str,
    *,
    title: str = "",
    fields: Mapping[str, Any] | None = None,
    start: int = 0,
    lines: bool = False,
) -> FileText:
    """Return the structure of a Markdown text (CommonMark with tables), which begins at `start`, after front matter.

    Its title is `title`, or that of the fields, or else `name`; `lines` says that the text is a file's own.
    """
    known_fields = dict(fields or {})
    body = shortened_rules(text[start:])
    text = text[:start] + body
    starts = [start, *line_ends(body, start), len(text)]
    headings: list[Heading] = []
    blocks: list[Block] = []
    references: dict[str, Any] = {}
    tokens = _BLOCKS.parse(body, references)
    for token, following in pairwise([*tokens, Token("end", "", 0)]):
        if token.type not in _LEAVES or token.map is None:
            continue
        begin, end = starts[token.map[0]], starts[min(token.map[1], len(starts) - 1)]
        if token.type == "heading_open" and token.level == 0:
            headings.append(Heading(int(token.tag[1]), plain(following.content, references), begin, end))
        elif token.type == "table_open":
            # The row of dashes ends the header.
            blocks.append(Block(begin, "table", starts[token.map[0] + 2]))
        elif token.type in ("fence", "code_block"):
            blocks.append(Block(begin, "code"))
        else:
            content = token.content or following.content
            # Tags, comments and links may have no words.
            if content.lstrip()[:1] not in ("<", "[") or plain(content, references):
                blocks.append(Block(begin))
    known = title or " ".join(str(known_fields.pop("title", "")).split()) or name
    return FileText(text, sections_of(text, headings, blocks, known, start=start), lines=lines, fields=known_fields)


def without_navigation(text: str) -> str:
    """Return a Markdown text with spaces in place of its tables of contents and rows of links; see `is_row_of_links`.

    A text that would be empty stays.
    """
    if "[" not in text and "</a>" not in text:
        return text
    references: dict[str, Any] = {}
    starts = [0, *line_ends(text), len(text)]
    spans: list[tuple[int, int]] = []
    above, has_text = "", False
    for block in _outermost(_BLOCKS.parse(text, references)):
        kind, contents = block[0].type, [token.content for token in block if token.content]
        parts: list[tuple[Token | None, str]] = []
        if kind.endswith("list_open") and any("](#" in content for content in contents):
            parts = [part for content in contents for part in _linked(content, references)]
            inner = [one for one in parts if one[0] and str(one[0].attrs.get("href", "")).startswith("#")]
            sizes = [sum(sum(map(str.isalnum, words)) for _, words in some) for some in (inner, parts)]
            is_navigation = is_contents(len({id(link) for link, _ in inner}), *sizes)
        elif kind in ("paragraph_open", "html_block") and above not in HEADINGS and len(contents[0]) < _MAX_ROW:
            is_navigation = is_row_of_links(_linked(contents[0], references))
        else:
            is_navigation = False
        above = block[0].tag
        has_text |= not is_navigation and kind != "heading_open"
        if is_navigation and block[0].map is not None:
            spans.append((starts[block[0].map[0]], starts[min(block[0].map[1], len(starts) - 1)]))
    return blanked(text, spans) if has_text else text


def _outermost(tokens: Iterable[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each block that is in no other one."""
    block: list[Token] = []
    for token in tokens:
        block.append(token)
        if token.level == 0 and token.nesting <= 0:
            yield block
            block = []


def _linked(content: str, references: Mapping[str, Any], *, pictures: bool = False) -> list[tuple[Token | None, str]]:
    """Return the pieces of a paragraph, each with what begins the link that it is in; None outside of links.

    With `pictures`, one outside of links is its alternative text.
    """
    link: Token | None = None
    parts: list[tuple[Token | None, str]] = []
    for token in (part for line in _INLINE.parseInline(content, dict(references)) for part in line.children or ()):
        if token.type == "link_open" or (token.type == "html_inline" and token.content.lower().startswith("<a ")):
            link = token
        elif token.type == "link_close" or (token.type == "html_inline" and token.content.lower().startswith("</a")):
            link = None
        elif token.type != "html_inline" and (token.type != "image" or (pictures and link is None)):
            parts.append((link, " " if "break" in token.type else token.content))
    return parts


def blanked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with spaces between these offsets, in place of all but line ends, so that all others stay."""
    parts, last = [], 0
    for start, end in spans:
        parts += [text[last:start], "".join(one if one in "\r\n" else " " for one in text[start:end])]
        last = end
    return "".join([*parts, text[last:]])


def line_ends(text: str, start: int = 0) -> list[int]:
    """Return the offset behind each line of a text that begins at `start`, as Markdown counts lines."""
    return list(accumulate(map(len, io.StringIO(text, newline="")), initial=start))[1:]


def plain(content: str, references: Mapping[str, Any] | None = None) -> str:
    """Return the words of a heading or paragraph, without markup, and without links that have pictures or signs alone.

    Such links are the badges of a project, or lead to the heading itself. `references` is what the parser of the
    document knows of the addresses of its links.
    """
    grouped = groupby(_linked(_without_anchor(content), references or {}, pictures=True), key=itemgetter(0))
    texts = [(link, "".join(words for _, words in parts)) for link, parts in grouped]
    words = "".join(text for link, text in texts if link is None or letters(text))
    return " ".join(_without_anchor(words).split())


def _without_anchor(heading: str) -> str:
    """Return a heading without marks of an anchor behind it: {#name}, {: #name}, and the sign of a link to it."""
    words, _, name = heading.rstrip().rpartition("{")
    marked = name.startswith((":", "#")) and name.find("}") == len(name) - 1
    return (words if marked else heading).rstrip("¶ ")


# --- Front matter ---


def front_matter(text: str) -> tuple[int, dict[str, Any]]:
    """Return where a text begins behind its front matter, and the fields of that; 0 and none where it has none.

    Text between two rules at the top of a file is front matter only if it is a mapping of names.
    """
    lines = list(io.StringIO(text[:_MAX_FRONT], newline=""))
    ends = _ENDS.get(lines[0].rstrip(), ()) if lines else ()
    last = next((number for number, line in enumerate(lines) if number > 1 and line.rstrip() in ends), 0)
    if not last or not lines[1][0].strip():
        return 0, {}
    content = "".join(lines[1:last])
    try:
        fields = yaml.safe_load(content) if "---" in ends else tomllib.loads(content.replace("\r", "\n"))
    except (yaml.YAMLError, ValueError, RecursionError):
        return 0, {}
    if not isinstance(fields, dict) or not all(isinstance(name, str) and _is_name(name) for name in fields):
        return 0, {}
    return sum(map(len, lines[: last + 1])), fields_of(fields)


def _is_name(name: str) -> bool:
    return all(part.isidentifier() for part in name.replace("-", "_").split("."))


def fields_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are short texts, numbers, truth values, dates (as texts), or lists of these."""
    fields: dict[str, Any] = {}
    for name, value in content.items():
        values = value if isinstance(value, list) else [value]
        plain = [one.isoformat() if isinstance(one, date | datetime | time) else one for one in values]
        short = sum(len(str(one)) for one in plain if _is_plain(one))
        if len(fields) < _MAX_FIELDS and plain and all(map(_is_plain, plain)) and short <= _MAX_FIELD:
            fields[name] = plain if isinstance(value, list) else plain[0]
    return fields


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | bool) or (isinstance(value, int | float) and abs(value) < 2**63 and isfinite(value))
