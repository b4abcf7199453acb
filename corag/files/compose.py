"""A text put together from headings and blocks, by readers of formats that are not Markdown."""

from __future__ import annotations

from typing import Literal

from corag.files.markdown import Block, FileText, Heading, sections_of


class TextBuilder:
    """Collects the headings and blocks of a document, in order; empty ones are left out."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._length = 0
        self._headings: list[Heading] = []
        self._blocks: list[Block] = []
        self._pages: list[int] = []

    def page(self) -> None:
        """Begin a page, such as a slide."""
        self._pages.append(self._length)

    def heading(self, level: int, words: str) -> None:
        """Add a heading; level 1 is the highest."""
        if words := " ".join(words.split()):
            start = self._length
            self._add(words)
            self._headings.append(Heading(level, words, start, self._length))

    def block(self, text: str, kind: Literal["text", "code", "table"] = "text", *, header: int = 0) -> None:
        """Add a block; the first `header` characters of a table are its header rows."""
        if text := text.rstrip():
            start = self._length
            self._add(text)
            self._blocks.append(Block(start, kind, start + header if header else 0))

    def table(self, rows: list[list[str]]) -> None:
        """Add a table in Markdown whose first row is its header; rows and columns without text are left out."""
        rows = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
        width = max((number for row in rows for number, cell in enumerate(row, start=1) if cell), default=0)
        lines = [f"| {' | '.join([*row, *[''] * width][:width])} |\n" for row in rows if any(row)]
        if lines:
            lines.insert(1, "|" + " --- |" * width + "\n")
            self.block("".join(lines), "table", header=len(lines[0]) + len(lines[1]))

    def file(self, title: str) -> FileText:
        """Return the document; `title` leads every path of headings unless its only first-level heading comes first."""
        text = "".join(self._text)
        return FileText(text, sections_of(text, self._headings, self._blocks, title), tuple(self._pages))

    def _add(self, text: str) -> None:
        self._text.append(f"{text}\n\n")
        self._length += len(text) + 2
