"""One page of all studies that were run: their tables and figures, as HTML and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corag.optional import require
from corag.text.visible import visible
from experiments.papers.results import Measured
from experiments.papers.tables import OWN, Sheet, markdown, notes, sheets
from experiments.run.journal import PAGE, output_file, write_atomically

TITLE = "Tables and figures of the papers"


@dataclass
class Section:
    """One study on the page.

    Attributes:
        name: Of the study.
        title: What it measures.
        claim: What the paper says.
        paper: Where it is from.
        svg: Its figure.
        sheets: Its tables.
        notes: Lines below them.
        markdown: All of it as Markdown.
        failed: Why it was not measured; empty where it was.
    """

    name: str
    title: str
    claim: str = ""
    paper: str | None = None
    svg: str = ""
    sheets: Sequence[Sheet] = ()
    notes: Sequence[str] = ()
    markdown: str = ""
    failed: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it, but for the figure."""
        return {name: value for name, value in asdict(self).items() if name != "svg"}

    @classmethod
    def of(cls, record: Mapping[str, Any], svg: str) -> Section:
        """Return the section that `to_dict` gave, with its figure."""
        return cls(**{**record, "svg": svg, "sheets": [Sheet(**sheet) for sheet in record["sheets"]]})


def section_of(measured: Measured, svg: str, figure: str) -> Section:
    """Return the section of a study.

    Args:
        measured: What it measured.
        svg: Its figure.
        figure: Path of that figure, from the page.
    """
    study = measured.study
    text = markdown(measured)
    if figure:
        text += f"\n![{study.name}]({figure})\n"
    return Section(study.name, measured.title, study.claim, study.paper, svg, sheets(measured), notes(measured), text)


def failed_section(name: str, title: str, error: str) -> Section:
    """Return the section of a study that could not be measured."""
    return Section(name, title, markdown=f"## {name}: {title}\n\nNot measured: {error}\n", failed=error)


def write_page(folder: Path, sections: Sequence[Section], summary: str) -> Path:
    """Write `index.html` and `index.md` into a folder, and return the first."""
    jinja = require("jinja2", "experiments")
    markup = jinja.utils.markupsafe.Markup
    environment = jinja.Environment(
        autoescape=True, finalize=lambda value: visible(value) if type(value) is str else value
    )

    def bold(text: str) -> Any:
        return markup(re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", str(jinja.utils.markupsafe.escape(visible(text)))))

    environment.filters["bold"] = bold
    template = (Path(__file__).parent / "templates" / "studies.html").read_text(encoding="utf-8")
    shown = [
        {
            **{name: getattr(one, name) for name in ("name", "title", "claim", "paper", "notes", "failed")},
            "svg": markup(_own_ids(one.svg, one.name)),
            "sheets": [
                {"caption": s.caption, "headings": s.headings, "lines": s.lines, "own": OWN} for s in one.sheets
            ],
        }
        for one in sections
    ]
    html = environment.from_string(template).render(title=TITLE, summary=summary, studies=shown)
    page = output_file(str(folder / "index.html"), PAGE)
    write_atomically(page, html)
    body = "\n".join(one.markdown for one in sections)
    write_atomically(folder / "index.md", f"# {TITLE}\n\n{summary}\n\n{body}")
    return page


def _own_ids(svg: str, name: str) -> str:
    """Return a figure whose ids no other figure of the page has: they are what its clips and marks refer to."""
    mark = re.sub(r"\W+", "-", name)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{mark}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{mark}-\1)", svg)
    return re.sub(r'href="#([^"]+)"', rf'href="#{mark}-\1"', svg)
