"""The tree of a page as Markdown, by markdownify, in a time and size in proportion to the page's."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from typing import Any

from markdownify import MarkdownConverter

from corag.files.formulas import linear
from corag.files.markdown import fenced

# A cell over more columns or rows is taken for one over these; a table has at most so many empty cells for one.
_MOST_SPANNED = 32
_EMPTY_CELLS = 4
_CELLS = ("td", "th")
_TABLE_PARTS = {"caption", "thead", "tbody", "tfoot", "tr", *_CELLS}
# A table around these is there for the layout, as line numbers beside code are.
_NOT_IN_TABLES = {"table", "h1", "h2", "h3", "h4", "h5", "h6", "pre"}
# Patterns of markdownify take the square of such a run's length.
_LONG_SPACE = re.compile(r"(?<!\s)(\s{1000})\s++")


def to_markdown(tree: Any) -> str:
    """Return a tree as Markdown: without pictures, links as their words."""
    _unwrap_layout_tables(tree)
    for table in tree.find_all("table"):
        _set_spans(table)
    for items in tree.find_all("ol"):
        start = str(items.get("start", ""))
        first = int(start) if start.isdecimal() and len(start) < 10 else 1
        for number, item in enumerate(items.find_all("li", recursive=False), start=first):
            item["number"] = number
    for heading in tree.find_all(["h1", "h2", "h3", "h4", "h5", "h6"]):
        if text := [text for text in heading.find_all(string=True) if text.strip()]:
            # Signs at its end would be taken for its mark.
            words = text[-1].rstrip().rstrip("#")
            if words != text[-1].rstrip() and not words[-1:].strip():
                text[-1].replace_with(f"{words}\\{text[-1][len(words) :]}")
    for formula in tree.find_all("math"):
        formula.replace_with(linear(formula))
    converter = _Converter(
        heading_style="ATX",
        strip=["a", "img"],
        escape_asterisks=False,
        escape_underscores=False,
        strong_em_symbol="*",
    )
    lines = [line.rstrip(" \t") for line in converter.convert_soup(tree).split("\n")]
    return "\n".join(line for above, line in pairwise(["", *lines]) if line or above).strip()


def _unwrap_layout_tables(tree: Any) -> None:
    """Make tables that are there for the layout blocks; write long runs of space, and bars in other tables, safely."""
    table_of: dict[int, Any] = {id(tree): None}
    parts: dict[int, list[Any]] = defaultdict(list)
    layout: dict[int, Any] = {}
    for node in list(tree.descendants):
        table = table_of[id(node.parent)]
        if node.name is None:
            parts[id(table)].append(node)
            continue
        table_of[id(node)] = node if node.name == "table" else table
        if table is not None and node.name in _NOT_IN_TABLES:
            layout[id(table)] = table
        if node.name == "table" and node.get("role") == "presentation":
            layout[id(node)] = node
        if node.name in _TABLE_PARTS:
            parts[id(table)].append(node)
    for table in layout.values():
        table.name = "div"
    for key, nodes in parts.items():
        for node in nodes:
            if node.name is not None:
                node.name = "div" if key in layout else node.name
                continue
            text = _LONG_SPACE.sub(r"\1", node)
            if key != id(None) and key not in layout:
                text = text.replace("|", "\\|")  # it would end the cell
            if text != node:
                node.replace_with(type(node)(text))


def _set_spans(table: Any) -> None:
    """Write into the cells of a table how many columns they take, and how many before them are those of rows above."""
    lines = table.find_all("tr")
    rows = [line.find_all(_CELLS, recursive=False) for line in lines]
    left = _EMPTY_CELLS * sum(map(len, rows)) + _MOST_SPANNED
    below: dict[int, int] = {}  # column -> further rows that a cell above takes there
    for number, cells in enumerate(rows):
        column = 0
        taken = {at: more - 1 for at, more in below.items() if more > 1}
        for cell in cells:
            before = 0
            while left and below.get(column):
                before, column, left = before + 1, column + 1, left - 1
            columns = min(_spanned(cell, "colspan"), left + 1)
            left -= columns - 1
            further = min(_spanned(cell, "rowspan"), len(rows) - number) - 1
            if further:
                taken.update(dict.fromkeys(range(column, column + columns), further))
            cell["before"], cell["columns"] = before, columns
            column += columns
        if number == 0:
            lines[0]["columns"] = column
        below = taken


def _spanned(cell: Any, name: str) -> int:
    number = str(cell.get(name, ""))
    return max(1, min(_MOST_SPANNED, int(number))) if number.isdecimal() and len(number) < 10 else 1


class _Converter(MarkdownConverter):
    """Converts elements that `to_markdown` has prepared; markdownify looks for a cell's or an item's neighbours."""

    def convert_li(self, el: Any, text: str, parent_tags: set[str]) -> str:
        mark = f"{el['number']}. " if "number" in el.attrs else "- "
        first, *lines = text.strip().split("\n")
        return "\n".join([mark + first, *(line and " " * len(mark) + line for line in lines)]) + "\n" if text else "\n"

    def convert_td(self, el: Any, text: str, parent_tags: set[str]) -> str:
        before, columns = int(el.get("before", 0)), int(el.get("columns", 1))
        return "  |" * before + f" {' '.join(text.split())} |" + "  |" * (columns - 1)

    convert_th = convert_td

    def convert_tr(self, el: Any, text: str, parent_tags: set[str]) -> str:
        # The first row of a table is its header.
        return f"|{text}\n|{' --- |' * int(el['columns'])}\n" if "columns" in el.attrs else f"|{text}\n"

    def convert_pre(self, el: Any, text: str, parent_tags: set[str]) -> str:
        return f"\n\n{fenced(text)}\n\n" if text.strip() else ""

    def convert_sup(self, el: Any, text: str, parent_tags: set[str]) -> str:
        words = text.strip()
        before = str(el.previous_sibling or "")[-1:]
        if not words or words[0] in "[(":
            return words
        if el.find("a", href=True) is not None:
            return f"[{words}]"  # a note
        if before.isdigit() and words.isalpha() and len(words) > 1:
            return words  # 1st
        return f"^{words}" if words.isalnum() else f"^({words})"

    def convert_sub(self, el: Any, text: str, parent_tags: set[str]) -> str:
        words, following = text.strip(), str(el.next_sibling or "")[:1]
        return f"_{words} " if following.isdigit() and words[-1:].isdigit() else words
