"""Pages in HTML: one look for all of them, each a single file that fetches nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from corag.optional import require
from corag.text.visible import visible

WIDE_PT = 450
TEMPLATES = Path(__file__).parent / "templates"
OPENING = "page.html"
"""The page that others extend: it leads with a verdict, a figure and a line for each method, and folds the rest."""


class Cell(NamedTuple):
    """A cell of a table; `kind` is `best` for what stands out, or `text` for what may be broken into lines."""

    text: Any
    kind: str = ""


class Table(NamedTuple):
    """A table of a page; cells are texts or `Cell`s."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    note: str = ""


class Drawing(NamedTuple):
    """A figure of a page, as SVG, with its heading and a caption."""

    title: str
    svg: str
    caption: str = ""


def render(template: str = OPENING, **values: Any) -> str:
    """Return a page: a template of this folder with its values, all but SVG of this project's own escaped."""
    return str(_environment().get_template(template).render(values))


@lru_cache(maxsize=1)
def _environment() -> Any:
    jinja = require("jinja2", "experiments")
    environment = jinja.Environment(loader=jinja.FileSystemLoader(TEMPLATES), autoescape=True, finalize=_shown)
    environment.filters["svg"] = lambda svg, name: jinja.utils.markupsafe.Markup(own_ids(svg, name))
    environment.tests["wide"] = _is_wide
    return environment


def with_interval(text: str, low: str, high: str) -> str:
    """Return a figure with its interval, which is not broken where a line ends."""
    return f"{text} ({low}\u00a0to\u00a0{high})"


def bold(text: str) -> Any:
    """Return a text of Markdown for a page, with what stands between `**` in bold."""
    markupsafe = require("jinja2", "experiments").utils.markupsafe
    return markupsafe.Markup(re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", str(markupsafe.escape(visible(text)))))


def _shown(value: Any) -> Any:
    """Return what a page shows for a value: a text without control characters."""
    return visible(value) if type(value) is str else value


def _is_wide(svg: str) -> bool:
    """Return whether a figure has panels side by side, which a telephone has no room for."""
    width = re.match(r'<svg [^>]*\bwidth="([\d.]+)pt"', svg)
    return width is not None and float(width[1]) > WIDE_PT


def own_ids(svg: str, name: str) -> str:
    """Return a figure whose ids no other figure of a page has: they are what its clips and marks refer to."""
    mark = re.sub(r"\W+", "-", name)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{mark}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{mark}-\1)", svg)
    return re.sub(r'href="#([^"]+)"', rf'href="#{mark}-\1"', svg)
