"""One page, rendered as HTML (a single file that fetches nothing and runs no script), as Markdown, or on a terminal.

Texts are escaped in every rendering; `**two asterisks**` make bold and backticks code, in cells of tables, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from rich.padding import Padding

from corag.cli.console import LONG_CELL, plain, print_table, say, stdout
from corag.optional import require
from corag.text.visible import visible

_BOLD = re.compile(r"\*\*(.+?)\*\*")


@dataclass(frozen=True)
class Table:
    """A table of texts, with a title above it and a note below it."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""

    @property
    def is_grouped(self) -> bool:
        """Whether rows without a first cell belong to the one above."""
        return any(row[0] == "" for row in self.rows)

    @property
    def columns_of_text(self) -> list[bool]:
        """For each column whether it has a cell of more than `LONG_CELL` characters."""
        return [any(len(cell) > LONG_CELL for cell in column) for column in zip(*self.rows, strict=True)]


@dataclass(frozen=True)
class Figure:
    """An SVG of this project's own, with its title and caption; Markdown and a terminal leave it out."""

    svg: str
    title: str = ""
    caption: str = ""


@dataclass(frozen=True)
class Quote:
    """A text of others, shown exactly as it is, with where it comes from; Markdown leaves it out."""

    text: str
    source: str = ""


@dataclass(frozen=True)
class Section:
    """A heading with blocks below it.

    Attributes:
        title: The heading.
        blocks: Paragraphs, tables, figures, quotes and sections.
        folded: Whether HTML shows it on a click, and a terminal leaves it out.
        unfolded: Whether HTML folds it on a click.
        anchor: Its id, which a page of several sections links at its top.
    """

    title: str
    blocks: Sequence[Block]
    folded: bool = False
    unfolded: bool = False
    anchor: str = ""


Block: TypeAlias = "str | Table | Figure | Quote | Section"


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
        """Return the page as Markdown, without figures, and without sections of nothing else."""
        lines = [f"# {self.title}", *_markdown(self.lead, 2)]
        lines += [text for section in self.sections for text in _markdown(section, 2)]
        return "\n\n".join(line for line in (*lines, self.note) if line) + "\n"

    def show(self) -> None:
        """Print the lead, and what of the sections is not folded."""
        _show(Section("", [self.lead, *self.sections]), stdout())


def markdown_table(headings: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """Return a Markdown table, without a line break at its end."""
    names = list(headings)
    lines = ([str(cell).replace("|", "\\|") for cell in cells] for cells in (names, ["---"] * len(names), *rows))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _markdown(block: Block, level: int) -> list[str]:
    if isinstance(block, Section):
        below = [text for one in block.blocks for text in _markdown(one, level + 1)]
        return [f"{'#' * level} {block.title}" if block.title and any(below) else "", *below]
    if isinstance(block, Table):
        return [block.title, markdown_table(block.headings, block.rows), block.note]
    return [visible(line) for line in block.splitlines()] if isinstance(block, str) else []


def _show(block: Block, console: Any) -> None:
    if isinstance(block, Section) and not block.folded:
        for one in block.blocks:
            _show(one, console)
    elif isinstance(block, Table):
        print_table(block.headings, [[_unmarked(cell) for cell in row] for row in block.rows], block.title)
    elif isinstance(block, Quote):
        console.print(plain(block.source), style="bold")
        console.print(Padding(plain(block.text), (0, 0, 1, 4)))
    elif isinstance(block, str) and block:
        say(_unmarked(block), console)


def _unmarked(text: str) -> str:
    """Return a text without what makes words bold; `f(**a)` stays."""
    return _BOLD.sub(r"\1", text)


@lru_cache(maxsize=1)
def _environment() -> Any:
    jinja = require("jinja2", "index")
    markup = jinja.utils.markupsafe

    def styled(text: str) -> Any:
        escaped = _BOLD.sub(r"<b>\1</b>", str(markup.escape(visible(str(text)))))
        return markup.Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escaped))

    environment = jinja.Environment(
        loader=jinja.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )  # fmt: skip
    environment.filters |= {"styled": styled, "svg": lambda figure: markup.Markup(figure.svg)}
    kinds = {"table": Table, "figure": Figure, "quote": Quote, "section": Section}
    environment.tests |= {name: lambda value, kind=kind: isinstance(value, kind) for name, kind in kinds.items()}
    return environment
