"""A study as a section of the page: its claim, figure, tables with the paper's own values, gains over the baseline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from corag.cli.page import Block, Figure, Section, Table
from experiments.papers.results import Point, StudyResult
from experiments.papers.study import METHOD
from experiments.report.difference import RESAMPLES, Difference
from experiments.report.measures import MEASURES, measure

AXES = {
    "exploration": "c", "cost_weight": "lambda", "num_candidates": "candidates", "max_tokens": "tokens of a chunk",
    "chunk": "tokens of a chunk", "parallel": "nodes a round", "backup": "back-up",
}  # fmt: skip
"""What tables and figures call axes; others by their names."""
MARK = "†"
"""Of a value that differs from the baseline's."""


def section_record(result: StudyResult) -> dict[str, Any]:
    """Return the section of a study as JSON values: texts and tables; its figure is a file beside it."""
    study = result.study
    claim = f"The paper: {study.claim}" if study.claim and study.paper else study.claim
    tables = [*([_main(result)] if result.methods else ()), *_gains(result), *_published(result)]
    blocks = [block for block in (claim, *tables, *_notes(result), *_ran(result)) if block]
    return {
        "title": f"{study.name}: {study.title}",
        "anchor": study.name,
        "blocks": [asdict(block) if isinstance(block, Table) else block for block in blocks],
    }


def read_section(record: Mapping[str, Any], svg: str, path: str) -> Section:
    """Return the section that `section_record` gave, with its figure, if there is one, and that file's path."""
    blocks: list[Block] = [Table(**block) if isinstance(block, Mapping) else block for block in record["blocks"]]
    if svg:
        # Ids that no other figure of a page has.
        svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{record['anchor']}-", svg)
        blocks.insert(1, Figure(svg, record["anchor"], path=path))
    return Section(record["title"], blocks, anchor=record["anchor"])


def heading(name: str) -> str:
    """Return the heading of a measure or an axis."""
    return MEASURES[name].title if name in MEASURES else AXES.get(name, name)


def _text(name: str, value: Any) -> str:
    """Return a value as tables show it: shares without the digit before the point, which says nothing."""
    if value is None or isinstance(value, str):
        return value or "-"
    shown = measure(name).format if isinstance(value, float) else ""
    return format(value, shown).replace("0.", ".", 1) if shown == ".3f" and abs(value) < 1 else f"{value:,{shown}}"


def _notes(result: StudyResult) -> list[str]:
    """Return what is below the tables."""
    legend = (
        f"{MARK} differs from {_baseline(result)}: the 95% interval of the difference, by paired bootstrap over "
        f"questions, those that share a document together ({RESAMPLES:,} samples), excludes 0."
    )
    return [*([legend] if result.study.baseline is not None else ()), *result.remarks, result.study.published.note]


def _ran(result: StudyResult) -> list[Table]:
    """Return the tables of what was run: data and settings, the spelling of every method, what is not the paper's."""
    settings = [list(setup) for setup in dict.fromkeys(tuple(method.setup.values()) for method in result.methods)]
    spelled = dict.fromkeys((method.values[METHOD], method.part) for method in result.methods)
    full = "the paper's study" if result.study.paper else "the full study"
    tables = [
        Table(list(result.methods[0].setup) if result.methods else [], settings, "What was run:"),
        Table(["method", "as it ran"], [list(row) for row in spelled]),
        Table(["setting", full, "here"], result.differences, f"Not as in {full}:"),
    ]
    return [table for table in tables if table.rows]


def _main(result: StudyResult) -> Table:
    """Return the table: our values, and below each line the paper's, if it gives any."""
    layout, study = result.study.table, result.study
    papers_own = study.published_figures if study.published.rows else ()
    figures = tuple(name for name in study.table_figures if name in papers_own or result.is_measured(name))
    columns, rows = list(_points(result, layout.columns)), list(_points(result, layout.rows))
    # A column for each figure, or one for each point with all figures in a cell.
    apart = not layout.columns or len(figures) == 1
    groups = [(name,) for name in figures] if apart else [figures]
    parts = [(point, names) for point in columns for names in groups]
    headings = [*map(heading, layout.rows)]
    headings += [" ".join(result.labels(point)) if layout.columns else heading(names[0]) for point, names in parts]
    best_values = [_best(result, names[0], point, rows) if len(names) == 1 else None for point, names in parts]
    lines = []
    for row in rows:
        ours, papers = [], []
        for (point, names), best in zip(parts, best_values, strict=True):
            there = {**row, **point}
            ours.append(" / ".join(_ours(result, name, there, best) for name in names))
            papers.append(" / ".join(_text(name, result.published(name, there)) for name in names))
        if any(set(cell) - set("-/ ") for cell in ours):
            lines.append([*result.labels(row), *ours])
        if any(set(cell) - set("-/ ") for cell in papers):
            *others, last = row.values()
            lines.append([*others, f"{last}, in the paper", *papers])
    return Table(headings, lines, "" if apart else f"In each cell: {' / '.join(map(heading, figures))}.")


def _ours(result: StudyResult, name: str, point: Point, best: float | None) -> str:
    figure, gain = result.figure(name, point), result.gain(name, point)
    if figure is None:
        return "-"
    bold = "**" if figure.mean == best else ""
    return f"{bold}{_text(name, figure.mean)}{bold}" + (MARK if gain is not None and gain.is_certain else "")


def _best(result: StudyResult, name: str, column: Point, rows: Sequence[Point]) -> float | None:
    """Return the best value of a column; None if there is no better or worse."""
    direction = measure(name).direction
    if METHOD not in result.study.table.rows or not direction:
        return None
    figures = [result.figure(name, {**row, **column}) for row in rows]
    values = {figure.mean for figure in figures if figure is not None}
    return max(values, key=lambda value: direction * value) if len(values) > 1 else None


def _gains(result: StudyResult) -> list[Table]:
    """Return the table of what each method gains over the baseline."""
    study = result.study
    axes = [name for name in (*study.table.columns, *study.table.rows) if name != METHOD]
    if len(result.values(METHOD)) > 1:
        axes.append(METHOD)
    points = list(_points(result, axes))
    columns = {name: [result.gain(name, point) for point in points] for name in study.table_figures}
    columns = {name: gains for name, gains in columns.items() if any(gains)}
    lines = [
        [*result.labels(point), *map(_gain, columns, gains)]
        for point, gains in zip(points, zip(*columns.values(), strict=True), strict=False)
        if any(gains)
    ]
    headings = [*map(heading, axes), *map(heading, columns)]
    return [Table(headings, lines, f"Gain over {_baseline(result)}, with 95% intervals:")] if lines else []


def _gain(name: str, gain: Difference | None) -> str:
    if gain is None:
        return "-"
    mean, low, high = (
        f"{'-' if value < 0 else '+'}{_text(name, abs(value))}" for value in (gain.mean, gain.low, gain.high)
    )
    return f"{mean} ({low} to {high})"


def _baseline(result: StudyResult) -> str:
    """Return what others are compared with, as a table calls it."""
    if result.study.against is None:
        return ""
    axis, value = result.study.against
    return value if axis == METHOD else f"{heading(axis)} {result.labels({axis: value})[0]}"


def _published(result: StudyResult) -> list[Table]:
    """Return the paper's values that have no line beside ours, as a table of their own."""
    study = result.study
    axes = list(dict.fromkeys(name for row in study.published.rows for name in row if name != "values"))
    lines = [
        [
            *(row.get(name, "all") for name in axes),
            *(_text(name, value) for name, value in zip(study.published_figures, row["values"], strict=True)),
        ]
        for row in study.published.rows
        if not _is_in_table(result, row)
    ]
    source = f", {study.published.source}" if study.published.source else ""
    headings = [*map(heading, axes), *map(heading, study.published_figures)]
    return [Table(headings, lines, f"The paper's own figures{source}:")] if lines else []


def _is_in_table(result: StudyResult, row: Mapping[str, Any]) -> bool:
    """Return whether a published row is in the table: all its values were measured."""
    study = result.study
    divided = {*study.table.rows, *study.table.columns}
    return all(
        name in divided and wanted in result.values(name)
        for name, wanted in row.items()
        if name != "values" and (name in divided or len(study.grid.get(name, study.methods)) > 1)
    )


def _points(result: StudyResult, axes: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the combinations of the values of some axes that were measured."""
    for values in product(*(result.values(axis) for axis in axes)):
        point = dict(zip(axes, values, strict=True))
        if result.at(point):
            yield point
