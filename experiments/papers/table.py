"""What a study measured, as tables: every cell and method, its lead over the baseline, and the paper's own figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corag.cli.page import Block, Table
from experiments.papers.study import METHOD, Study
from experiments.report.difference import RESAMPLES, Difference
from experiments.report.measures import MEASURES, Row, measure

Point = Mapping[str, str]
"""Values of axes, and of `method`, by name; what is not named is averaged over."""


@dataclass(frozen=True)
class Measured:
    """One method in one cell.

    Attributes:
        values: Value of each axis, and `method`.
        rows: Its figures of each question.
        summary: Its figures over all questions, as `corag evaluate` gives them.
        part: str of the method that ran.
        file: File of the comparison, below the folder of the study.
        setup: Data, budget and the like of the comparison, by name.
    """

    values: Point
    rows: Sequence[Row]
    summary: Mapping[str, Any]
    part: str = ""
    file: str = ""
    setup: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self, study: Study) -> dict[str, Any]:
        """Return it as JSON values; rows of questions are in files beside it."""
        about = {"values": dict(self.values), "part": self.part, **self.setup, "file": self.file}
        known = {name: figure([self], name, self.values) for name in study.figures}
        shown = {name: {"value": one.mean, "low": one.low, "high": one.high} for name, one in known.items() if one}
        return {**about, "questions": len(self.rows), **shown}


def figure(measured: Sequence[Measured], name: str, point: Point) -> Difference | None:
    """Return a figure at a point with its interval over questions; None if nothing has it.

    A question that several cells asked counts once, with the mean of its figures. A figure that questions do not have,
    such as a median, is averaged over cells, without an interval.
    """
    # A cell that keeps none of its questions has no figures; its summary is over all that were asked.
    chosen, of = [one for one in measured if point.items() <= one.values.items() and one.rows], measure(name)
    if of.total is None and (interval := of.difference(list(_by_question(chosen, of.parts or (name,)).values()))):
        return interval
    known = [one.summary[name] for one in chosen if one.summary.get(name) is not None]
    if not known:
        return None
    value = float(np.sum(known) if isinstance(known[0], int) else np.mean(known))
    return Difference(value, value, value, 1.0, len(known))


def gain(study: Study, measured: Sequence[Measured], name: str, point: Point) -> Difference | None:
    """Return what a method, or a value of an axis, gains over the baseline, with its interval, on the same questions.

    None for the baseline itself, if a side lacks the figure, and for a figure that questions do not have.
    """
    if study.against is None or point.get(study.against[0]) in (None, study.against[1]):
        return None
    of, there = measure(name), {**point, study.against[0]: study.against[1]}
    ours, theirs = (
        _by_question([one for one in measured if where.items() <= one.values.items()], of.parts or (name,))
        for where in (point, there)
    )
    both = [key for key in ours if key in theirs]
    return of.difference([ours[key] for key in both], [theirs[key] for key in both])


def blocks(study: Study, measured: Sequence[Measured]) -> list[Block]:
    """Return claim and tables: the cells, the paper's figures beside ours, and what was run."""
    names = [name for name in study.figures if any(figure(measured, name, one.values) for one in measured)]
    axes = [*study.grid, METHOD]
    lines = [
        [*(one.values[axis] for axis in axes), *(_shown(study, measured, name, one.values) for name in names)]
        for one in measured
    ]
    claim = f"The paper: {study.claim}" if study.claim and study.paper else study.claim
    found: list[Block] = [*([claim] if claim else []), Table([*axes, *map(_title, names)], lines)]
    if study.against is not None:
        found.append(
            f"In parentheses the gain over {study.against[1]}, with its 95% interval by paired bootstrap over "
            f"questions, those that share a document together ({RESAMPLES:,} samples)."
        )
    found += [*_published(study, measured), *([note] if (note := study.published.get("note")) else [])]
    setups = [list(setup) for setup in dict.fromkeys(tuple(one.setup.values()) for one in measured)]
    parts = dict.fromkeys((one.values[METHOD], one.part) for one in measured)
    found.append(Table(list(measured[0].setup) if measured else [], setups, "What was run:"))
    return [*found, Table(["method", "as it ran"], [list(row) for row in parts])]


def _published(study: Study, measured: Sequence[Measured]) -> list[Table]:
    """Return the table of the paper's figures and ours at the same values, averaged over axes that a row leaves out."""
    rows = study.published.get("rows", ())
    axes = [axis for axis in (*study.grid, METHOD) if any(axis in row for row in rows)]
    names = [name for name in study.figures if name not in axes and any(name in row for row in rows)]
    lines = []
    for row in rows:
        point = {axis: str(row[axis]) for axis in axes if axis in row}
        cells = []
        for name in names:
            ours = figure(measured, name, point)
            cells += [_text(name, row.get(name)), _text(name, ours and ours.mean)]
        lines.append([*(point.get(axis, "all") for axis in axes), *cells])
    headings = [*axes, *(f"{_title(name)}{ours}" for name in names for ours in ("", ", here"))]
    source = f", {study.published['source']}" if study.published.get("source") else ""
    return [Table(headings, lines, f"The paper's own figures{source}, beside ours:")] if rows else []


def _shown(study: Study, measured: Sequence[Measured], name: str, point: Point) -> str:
    own, lead = figure(measured, name, point), gain(study, measured, name, point)
    if own is None or lead is None:
        return _text(name, own and own.mean)
    signs = (f"{'-' if value < 0 else '+'}{_text(name, abs(value))}" for value in (lead.mean, lead.low, lead.high))
    return "{} ({}, {} to {})".format(_text(name, own.mean), *signs)


def _title(name: str) -> str:
    return MEASURES[name].title if name in MEASURES else name


def _text(name: str, value: Any) -> str:
    """Return a value as tables show it: shares without the digit before the point, which says nothing."""
    if value is None:
        return "-"
    shown = measure(name).format if isinstance(value, float) else ""
    return format(value, shown).replace("0.", ".", 1) if shown == ".3f" and abs(value) < 1 else f"{value:,{shown}}"


def _by_question(measured: Sequence[Measured], figures: Sequence[str]) -> dict[tuple[str, str], Row]:
    """Return the means of some figures, and the group, of each question that has all of them, by data set and question.

    Questions that share a document are one group, as `experiments.report.difference` resamples them.
    """
    lists: dict[tuple[str, str], list[list[float]]] = {}
    groups: dict[tuple[str, str], str] = {}
    for one in measured:
        data = one.values.get("data", "")
        for row in one.rows:
            if all(row.get(name) is not None for name in figures):
                key = (data, str(row["query"]))
                lists.setdefault(key, []).append([float(row[name]) for name in figures])
                groups[key] = f"{data} {row.get('group', row['query'])}"
    return {
        key: {**dict(zip(figures, np.mean(rows, axis=0).tolist(), strict=True)), "group": groups[key]}
        for key, rows in lists.items()
    }
