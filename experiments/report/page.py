"""One page, rendered as HTML (a single file that fetches nothing), as Markdown, or on a terminal.

Texts are escaped in every rendering; `**two asterisks**` make bold, in cells of tables, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from corag.cli.console import say, stdout
from corag.cli.console import table as console_table
from corag.optional import require
from corag.text.visible import visible

LONG_CELL = 40
"""Characters of a cell that is left-aligned and broken into lines."""
WIDE_PT = 450
"""Points of a figure with panels side by side, which a telephone scrolls."""


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        headings: Of the columns.
        rows: A text for each column.
        title: Above it.
        note: Below it.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""

    @property
    def is_grouped(self) -> bool:
        """Whether rows without a first cell belong to the one above."""
        return any(row[0] == "" for row in self.rows)


@dataclass(frozen=True)
class Figure:
    """An SVG of this project's own, with its title and caption; Markdown links `path`, a terminal leaves it out."""

    svg: str
    title: str = ""
    caption: str = ""
    path: str = ""


@dataclass(frozen=True)
class ShownPassage:
    """A text of others, whether it is evidence, and what is marked in it."""

    text: str
    is_evidence: bool = False
    marked: str = ""

    @property
    def parts(self) -> list[tuple[str, bool]]:
        """The text in parts, each with whether it is marked; case is ignored."""
        if len(self.marked) < 2:
            return [(self.text, False)]
        parts = re.split(f"({re.escape(self.marked)})", self.text, flags=re.IGNORECASE)
        return [(part, index % 2 == 1) for index, part in enumerate(parts) if part]


@dataclass(frozen=True)
class Column:
    """One of several columns side by side, in HTML alone: a heading, a line, and passages."""

    heading: str
    line: str
    passages: Sequence[ShownPassage]


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, tables, figures, columns side by side, and sections below it.

    Attributes:
        title: The heading.
        blocks: What is below it; tuples of columns are set side by side.
        folded: Whether HTML shows it on a click, and a terminal leaves it out.
        anchor: Its id, which a page of several sections links at its top.
    """

    title: str
    blocks: Sequence[Block]
    folded: bool = False
    anchor: str = ""


Block: TypeAlias = "str | Table | Figure | tuple[Column, ...] | Section"


@dataclass(frozen=True)
class Page:
    """A title, what came out in a few lines, and sections."""

    title: str
    lead: str
    sections: Sequence[Section]
    note: str = ""

    def html(self) -> str:
        """Return the page as one file of HTML."""
        return str(_environment().get_template("page.html").render(page=self))

    def markdown(self) -> str:
        """Return the page as Markdown, without figures that are not files."""
        lines = [f"# {self.title}", *_markdown(self.lead, 2)]
        lines += [text for section in self.sections for text in _markdown(section, 2)]
        return "\n\n".join(line for line in (*lines, self.note) if line) + "\n"

    def show(self, console: Any = None) -> None:
        """Print the lead, and what of the sections is not folded."""
        console = console or stdout()
        _show(self.lead, console)
        for section in self.sections:
            _show(section, console)


def markdown_table(headings: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """Return a Markdown table, without a line break at its end."""
    names = list(headings)
    lines = ([str(cell).replace("|", "\\|") for cell in cells] for cells in (names, ["---"] * len(names), *rows))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _markdown(block: Block, level: int) -> list[str]:
    if isinstance(block, Section):
        below = [text for one in block.blocks for text in _markdown(one, level + 1)]
        return [f"{'#' * level} {block.title}" if block.title else "", *below]
    if isinstance(block, Table):
        return [block.title, markdown_table(block.headings, block.rows), block.note]
    if isinstance(block, Figure):
        return [f"![{block.title}]({block.path})" if block.path else ""]
    return [visible(line) for line in block.splitlines()] if isinstance(block, str) else []


def _show(block: Block, console: Any) -> None:
    if isinstance(block, Section) and not block.folded:
        for one in block.blocks:
            _show(one, console)
    elif isinstance(block, Table):
        columns = {str(index): heading for index, heading in enumerate(block.headings)}
        rows = [dict(zip(columns, (cell.replace("**", "") for cell in row), strict=True)) for row in block.rows]
        # Cells that are cut or folded cannot be read; a line that is too long can be scrolled.
        widths = [max(map(len, (heading, *(row[name] for row in rows)))) for name, heading in columns.items()]
        console.width = max(console.width, 1 + sum(widths) + 3 * len(widths))
        console.print(console_table(rows, columns, title=block.title))
    elif isinstance(block, str) and block:
        say(block.replace("**", ""), console)


@lru_cache(maxsize=1)
def _environment() -> Any:
    jinja = require("jinja2", "experiments")
    environment = jinja.Environment(
        loader=jinja.FileSystemLoader(Path(__file__).parent), autoescape=True, finalize=_shown, trim_blocks=True
    )
    environment.filters |= {"bold": _bold, "svg": lambda figure: jinja.utils.markupsafe.Markup(own_ids(figure))}
    kinds = {"table": Table, "figure": Figure, "columns": tuple, "section": Section}
    environment.tests |= {name: lambda value, kind=kind: isinstance(value, kind) for name, kind in kinds.items()}
    environment.tests |= {"long": lambda text: len(text) > LONG_CELL, "wide": _is_wide}
    return environment


def _bold(text: str) -> Any:
    """Return a text with what stands between `**` in bold."""
    markupsafe = require("jinja2", "experiments").utils.markupsafe
    return markupsafe.Markup(re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", str(markupsafe.escape(visible(str(text))))))


def _shown(value: Any) -> Any:
    """Return what a page shows for a value: a text without control characters."""
    return visible(value) if type(value) is str else value


def _is_wide(figure: Figure) -> bool:
    width = re.match(r'<svg [^>]*\bwidth="([\d.]+)pt"', figure.svg)
    return width is not None and float(width[1]) > WIDE_PT


def own_ids(figure: Figure) -> str:
    """Return a figure whose ids no other figure of a page has: they are what its clips and marks refer to."""
    mark = re.sub(r"\W+", "-", figure.title) or "figure"
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{mark}-\1"', figure.svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{mark}-\1)", svg)
    return re.sub(r'href="#([^"]+)"', rf'href="#{mark}-\1"', svg)
