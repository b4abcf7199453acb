"""One page of all studies that were run: their tables and figures, as HTML and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.papers.results import Measured
from experiments.papers.tables import Sheet, markdown, notes, sheets
from experiments.report import page as pages
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
    html = pages.Page(TITLE, summary, [_study(one) for one in sections]).html()
    page = output_file(str(folder / "index.html"), PAGE)
    write_atomically(page, html)
    body = "\n".join(one.markdown for one in sections)
    write_atomically(folder / "index.md", f"# {TITLE}\n\n{summary}\n\n{body}")
    return page


def _study(one: Section) -> pages.Section:
    blocks: list[pages.Block] = [one.claim and f"{'The paper: ' if one.paper else ''}{one.claim}"]
    blocks += [f"**not measured**: {one.failed}" if one.failed else ""]
    blocks += [pages.Figure(one.svg, one.name)] if one.svg else []
    blocks += [pages.Table(sheet.headings, sheet.lines, sheet.caption) for sheet in one.sheets]
    blocks += one.notes
    return pages.Section(f"{one.name}: {one.title}", [block for block in blocks if block != ""], anchor=one.name)
