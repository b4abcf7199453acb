"""A study as a section of the page: its claim, figure, tables with the paper's own values, gains over the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from experiments.papers.results import Measured, Where
from experiments.papers.study import METHOD, as_list
from experiments.report.difference import RESAMPLES, Difference
from experiments.report.measures import MEASURES, measure
from experiments.report.page import Block, Figure, Section, Table

AXES = {
    "exploration": "c", "cost_weight": "lambda", "num_candidates": "candidates", "max_tokens": "tokens of a chunk",
    "chunk": "tokens of a chunk", "parallel": "nodes a round", "backup": "back-up",
}  # fmt: skip
"""What tables and figures call axes; others by their names."""
SHORT = {"rouge1": "R1", "rouge2": "R2", "rougeL": "RL"}
"""Headings of columns that a value of an axis shares with others."""
OWN = "in the paper"
MARK = "†"
"""Of a value that differs from the baseline's."""


def section_of(measured: Measured, svg: str, path: str) -> Section:
    """Return the section of a study.

    Args:
        measured: What it measured.
        svg: Its figure; empty for none.
        path: Path of that figure from the page.
    """
    study = measured.study
    claim = f"The paper: {study.claim}" if study.claim and study.paper else study.claim
    blocks: list[Block] = [claim, *tables(measured), *notes(measured)]
    if svg:
        blocks.insert(1, Figure(svg, study.name, path=path))
    title = f"{study.name}: {measured.title}"
    return Section(title, [block for block in blocks if block != ""], anchor=study.name)


def section_record(section: Section) -> dict[str, Any]:
    """Return a section as JSON holds it: texts and tables; its figure is a file beside it."""
    blocks = [asdict(one) if isinstance(one, Table) else one for one in section.blocks if isinstance(one, str | Table)]
    return {"title": section.title, "anchor": section.anchor, "blocks": blocks}


def read_section(record: Mapping[str, Any], svg: str, path: str) -> Section:
    """Return the section that `section_record` gave, with its figure."""
    blocks: list[Block] = [Table(**one) if isinstance(one, Mapping) else one for one in record["blocks"]]
    if svg:
        blocks.insert(1, Figure(svg, record["anchor"], path=path))
    return Section(record["title"], blocks, anchor=record["anchor"])


def heading(name: str, *, short: bool = False) -> str:
    """Return the heading of a measure or an axis."""
    if short and name in SHORT:
        return SHORT[name]
    return MEASURES[name].title if name in MEASURES else AXES.get(name, name)


def text(name: str, value: Any) -> str:
    """Return a value as tables show it: shares without the digit before the point, which says nothing."""
    if value is None or isinstance(value, str):
        return value or "-"
    if isinstance(value, int):
        return f"{value:,}"
    shown = measure(name).format
    return (
        format(value, shown).replace("0.", ".", 1) if shown == ".3f" and abs(value) < 1 else format(value, f",{shown}")
    )


def tables(measured: Measured) -> list[Table]:
    """Return the tables of a study."""
    if measured.lines:
        headings = list(dict.fromkeys(name for line in measured.lines for name in line))
        lines = [[text("", line.get(name)) for name in headings] for line in measured.lines]
        return [Table(headings, lines), *_published(measured)]
    return [*(_main(measured) if measured.found else ()), *_gains(measured), *_published(measured)]


def notes(measured: Measured) -> list[str]:
    """Return what is below the tables."""
    study, found = measured.study, list(measured.remarks)
    if study.baseline is not None and measured.found:
        found.insert(
            0,
            f"{MARK} differs from {_baseline(measured)}: the 95% interval of the difference, by paired bootstrap over "
            f"questions ({RESAMPLES:,} samples), leaves out 0.",
        )
    return [*found, *filter(None, [study.published.note]), *study.remarks]


def _main(measured: Measured) -> Iterator[Table]:
    """Yield the table: our values, and below each line the paper's, where it gives any."""
    layout, names = measured.study.table, measured.study.table_figures
    columns, rows = list(_combinations(measured, layout.columns)), list(_combinations(measured, layout.rows))
    # A column for each measure, or one for each combination with all measures in a cell.
    apart = not layout.columns or len(names) == 1
    parts = [(one, (name,)) for one in columns for name in names] if apart else [(one, names) for one in columns]
    best = _best(measured, rows, parts) if len(rows) > 1 and METHOD in layout.rows else {}
    headings = [*map(heading, layout.rows)]
    for one, of in parts:
        values = " ".join(measured.shown(one))
        headings.append(
            heading(of[0])
            if not layout.columns
            else values
            if len(names) == 1 or not apart
            else f"{values} {heading(of[0], short=True)}"
        )
    lines = []
    for row in rows:
        ours = [
            " / ".join(_ours(measured, name, {**row, **one}, best.get((index, name))) for name in of)
            for index, (one, of) in enumerate(parts)
        ]
        theirs = [" / ".join(text(name, measured.published(name, {**row, **one})) for name in of) for one, of in parts]
        if any(set(cell) - set("-/ ") for cell in ours):
            lines.append([*measured.shown(row), *ours])
        if any(set(cell) - set("-/ ") for cell in theirs):
            *others, last = row.values()
            lines.append([*others, f"{last}, {OWN}", *theirs])
    yield Table(headings, lines, "" if apart else f"In each cell: {' / '.join(heading(name) for name in names)}.")


def _ours(measured: Measured, name: str, where: Where, best: float | None) -> str:
    found, gained = measured.figure(name, where), measured.lead(name, where)
    if found is None:
        return "-"
    shown = text(name, found.mean)
    mark = MARK if gained is not None and gained.is_certain else ""
    return f"**{shown}**{mark}" if best is not None and found.mean == best else f"{shown}{mark}"


def _best(measured: Measured, rows: Sequence[Where], parts: Sequence[tuple[Where, Sequence[str]]]) -> dict[Any, float]:
    """Return the best value of each column that has one measure."""
    best = {}
    for index, (column, names) in enumerate(parts):
        direction = measure(names[0]).direction
        found = [measured.figure(names[0], {**row, **column}) for row in rows]
        values = {one.mean for one in found if one is not None}
        if len(names) == 1 and direction and len(values) > 1:
            best[index, names[0]] = max(values, key=lambda value: direction * value)
    return best


def _gains(measured: Measured) -> list[Table]:
    """Return the table of what each method gains over the baseline."""
    study = measured.study
    axes = [name for name in (*study.table.columns, *study.table.rows) if name != METHOD]
    if len(measured.values(METHOD)) > 1:
        axes.append(METHOD)
    lines = []
    for where in _combinations(measured, axes):
        gains = {name: measured.lead(name, where) for name in study.table_figures}
        if any(gains.values()):
            lines.append([*measured.shown(where), *(_gain(name, one) for name, one in gains.items())])
    headings = [*map(heading, axes), *map(heading, study.table_figures)]
    return [Table(headings, lines, f"Gain over {_baseline(measured)}, with 95% intervals:")] if lines else []


def _gain(name: str, one: Difference | None) -> str:
    if one is None:
        return "-"
    mean, low, high = (
        f"{'-' if value < 0 else '+'}{text(name, abs(value))}" for value in (one.mean, one.low, one.high)
    )
    return f"{mean} ({low} to {high})"


def _baseline(measured: Measured) -> str:
    """Return what others are compared with, as a table calls it."""
    if measured.study.against is None:
        return ""
    axis, value = measured.study.against
    return value if axis == METHOD else f"{heading(axis)} {measured.shown({axis: value})[0]}"


def _published(measured: Measured) -> list[Table]:
    """Return the paper's values that have no line beside ours, as a table of their own."""
    study = measured.study
    axes = list(dict.fromkeys(name for row in study.published.rows for name in row if name != "values"))
    left = [row for row in study.published.rows if measured.lines or not _is_shown(measured, row)]
    lines = [
        [
            *(", ".join(as_list(row.get(name, "all"))) for name in axes),
            *(text(name, value) for name, value in zip(study.published_figures, row["values"], strict=True)),
        ]
        for row in left
    ]
    source = f", {study.published.source}" if study.published.source else ""
    headings = [*map(heading, axes), *map(heading, study.published_figures)]
    return [Table(headings, lines, f"The paper's own figures{source}:")] if lines else []


def _is_shown(measured: Measured, row: Mapping[str, Any]) -> bool:
    """Return whether a published row is in the table: all its values were measured."""
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
