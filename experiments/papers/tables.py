"""Tables of a study: its figures by method and axes with the paper's beside them, and leads over the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from experiments.papers.results import Measured, Where
from experiments.papers.study import METHOD, as_list
from experiments.report.difference import RESAMPLES
from experiments.report.measures import MEASURES, measure
from experiments.report.page import markdown_table

AXES = {
    "exploration": "c", "cost_weight": "lambda", "num_candidates": "candidates", "max_tokens": "tokens of a chunk",
    "chunk": "tokens of a chunk", "parallel": "nodes a round", "backup": "back-up",
}  # fmt: skip
"""What tables and figures call axes; others by their names."""
SHORT = {"rouge1": "R1", "rouge2": "R2", "rougeL": "RL"}
"""Headings where all figures stand in one cell."""
OWN = "in the paper"
MARK = "†"
"""Of a figure that differs from the baseline's."""


@dataclass(frozen=True)
class Sheet:
    """A table to be shown."""

    caption: str
    headings: Sequence[str]
    lines: Sequence[Sequence[str]]

    @property
    def markdown(self) -> str:
        """The table as Markdown, its caption above it."""
        return (
            f"{self.caption}\n\n{markdown_table(map(_cell, self.headings), (map(_cell, line) for line in self.lines))}"
        )


def markdown(measured: Measured) -> str:
    """Return title, claim, tables and remarks of a study as Markdown."""
    study = measured.study
    parts = [f"## {study.name}: {measured.title}"]
    if study.claim:
        parts.append(f"The paper: {study.claim}" if study.paper else study.claim)
    parts += [sheet.markdown for sheet in sheets(measured)]
    parts += ["\n".join(f"- {remark}" for remark in notes(measured))]
    return "\n\n".join(part for part in parts if part) + "\n"


def sheets(measured: Measured) -> list[Sheet]:
    """Return the tables of a study."""
    if measured.lines:
        headings = list(dict.fromkeys(name for line in measured.lines for name in line))
        lines = [[_text(line.get(name)) for name in headings] for line in measured.lines]
        return [Sheet("", headings, lines), *_of_paper(measured)]
    if not measured.found:
        return _of_paper(measured)
    return [_main(measured), *_leads(measured), *_of_paper(measured)]


def notes(measured: Measured) -> list[str]:
    """Return what stands below the tables."""
    study, found = measured.study, list(measured.remarks)
    if study.baseline is not None and measured.found:
        found.insert(
            0,
            f"{MARK} differs from {_baseline(measured)}: the 95% interval of the difference, by paired bootstrap over "
            f"questions ({RESAMPLES:,} samples), leaves out 0.",
        )
    if study.published.note:
        found.append(study.published.note)
    return [*found, *study.remarks]


def heading(name: str, *, short: bool = False) -> str:
    """Return the heading of a figure or an axis."""
    if short and name in SHORT:
        return SHORT[name]
    return MEASURES[name].title if name in MEASURES else AXES.get(name, name)


def text(name: str, value: Any) -> str:
    """Return a figure as tables show it."""
    if value is None or isinstance(value, str):
        return value or "-"
    if isinstance(value, int):
        return f"{value:,}"
    shown = measure(name).format
    return (
        format(value, shown).replace("0.", ".", 1) if shown == ".3f" and abs(value) < 1 else format(value, f",{shown}")
    )


def _main(measured: Measured) -> Sheet:
    """Return the table: our figures, and below each line the paper's, where it gives any."""
    table, figures = measured.study.table, measured.study.table_figures
    columns = list(_combinations(measured, table.columns))
    rows = list(_combinations(measured, table.rows))
    # A column for each figure, or one for each combination with all figures in a cell.
    apart = not table.columns or len(figures) == 1
    parts = (
        [(one, (figure,)) for one in columns for figure in figures] if apart else [(one, figures) for one in columns]
    )
    best = _best(measured, rows, parts) if len(rows) > 1 and METHOD in table.rows else {}
    headings = [
        *map(heading, table.rows),
        *(_column(measured.shown(one), of, apart=apart, alone=not table.columns) for one, of in parts),
    ]
    lines = []
    for row in rows:
        ours = [
            " / ".join(_ours(measured, name, {**row, **one}, best.get((place, name))) for name in of)
            for place, (one, of) in enumerate(parts)
        ]
        theirs = [" / ".join(text(name, measured.published(name, {**row, **one})) for name in of) for one, of in parts]
        if any(set(cell) - set("-/ ") for cell in ours):
            lines.append([*measured.shown(row), *ours])
        if any(set(cell) - set("-/ ") for cell in theirs):
            lines.append([*list(row.values())[:-1], f"{list(row.values())[-1]}, {OWN}", *theirs])
    shown = "" if apart else f"In each cell: {' / '.join(heading(name) for name in figures)}."
    return Sheet(shown, headings, lines)


def _column(values: Sequence[str], figures: Sequence[str], *, apart: bool, alone: bool) -> str:
    names = " ".join(values)
    if alone:
        return heading(figures[0])
    return f"{names} {heading(figures[0], short=True)}" if apart and len(figures) > 1 else names


def _ours(measured: Measured, name: str, where: Where, best: float | None) -> str:
    found = measured.figure(name, where)
    if found is None:
        return "-"
    gained = measured.lead(name, where)
    mark = MARK if gained is not None and gained.is_certain else ""
    shown = text(name, found.mean)
    return f"**{shown}**{mark}" if best is not None and found.mean == best else f"{shown}{mark}"


def _best(measured: Measured, rows: Sequence[Where], parts: Sequence[tuple[Where, Sequence[str]]]) -> dict[Any, float]:
    """Return the best value of each figure of each column, where the column has one figure."""
    best = {}
    for place, (column, figures) in enumerate(parts):
        better = measure(figures[0]).direction
        found = [measured.figure(figures[0], {**row, **column}) for row in rows]
        values = {one.mean for one in found if one is not None}
        if len(figures) == 1 and better and len(values) > 1:
            best[place, figures[0]] = max(values, key=lambda value: better * value)
    return best


def _leads(measured: Measured) -> list[Sheet]:
    """Return the table of what each method gains over the baseline."""
    study = measured.study
    axes = [name for name in (*study.table.columns, *study.table.rows) if name != METHOD]
    if len(measured.values(METHOD)) > 1:
        axes.append(METHOD)
    lines = []
    for where in _combinations(measured, axes):
        leads = {name: measured.lead(name, where) for name in study.table_figures}
        if any(leads.values()):
            cells = [
                "-"
                if one is None
                else f"{_signed(name, one.mean)} ({_signed(name, one.low)} to {_signed(name, one.high)})"
                for name, one in leads.items()
            ]
            lines.append([*measured.shown(where), *cells])
    if not lines:
        return []
    headings = [*map(heading, axes), *map(heading, study.table_figures)]
    return [Sheet(f"Gain over {_baseline(measured)}, with 95% intervals:", headings, lines)]


def _baseline(measured: Measured) -> str:
    """Return what others are compared with, as a table calls it."""
    if measured.study.against is None:
        return ""
    axis, value = measured.study.against
    return value if axis == METHOD else f"{heading(axis)} {measured.shown({axis: value})[0]}"


def _of_paper(measured: Measured) -> list[Sheet]:
    """Return the paper's figures that have no place beside ours, as a table of their own."""
    study = measured.study
    axes = list(dict.fromkeys(name for row in study.published.rows for name in row if name != "values"))
    left = [row for row in study.published.rows if measured.lines or not _is_shown(measured, row)]
    if not left:
        return []
    lines = [
        [
            *(", ".join(as_list(row.get(name, "all"))) for name in axes),
            *(text(name, value) for name, value in zip(study.published_figures, row["values"], strict=True)),
        ]
        for row in left
    ]
    source = f", {study.published.source}" if study.published.source else ""
    caption = f"The paper's own figures{source}:"
    return [Sheet(caption, [*map(heading, axes), *map(heading, study.published_figures)], lines)]


def _is_shown(measured: Measured, row: Mapping[str, Any]) -> bool:
    """Return whether a published row stands in the table: all its values were measured."""
    study = measured.study
    divided = {*study.table.rows, *study.table.columns}
    return all(
        name in divided and set(as_list(wanted)) <= set(measured.values(name))
        for name, wanted in row.items()
        if name != "values" and (name in divided or len(study.axes.get(name, study.methods)) > 1)
    )


def _combinations(measured: Measured, axes: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the combinations of the values of some axes that were measured."""
    for values in product(*(measured.values(axis) for axis in axes)):
        where = dict(zip(axes, values, strict=True))
        if measured.at(where):
            yield where


def _signed(name: str, value: float) -> str:
    shown = text(name, abs(value))
    return f"{'-' if value < 0 else '+'}{shown}"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        if abs(value) >= 10:
            return f"{value:,.1f}"
        return f"{value:.3g}" if abs(value) >= 0.01 or not value else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
