"""What a study measured, as tables: every cell and method, its lead over the baseline, and the paper's own figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corag.cli.page import Block, Table
from experiments.papers.study import METHOD, Study
from experiments.report.difference import RESAMPLES, Difference
from experiments.report.measures import Row, measure


@dataclass(frozen=True)
class Measured:
    """One method in one cell.

    Attributes:
        values: Value of each axis, and `method`.
        rows: Its figures of each question that counts.
        part: Spelling of the method that ran.
        file: File of the comparison, below the folder of the study.
        setup: Data, budget and the like of the comparison, by name.
    """

    values: Mapping[str, str]
    rows: Sequence[Row]
    part: str = ""
    file: str = ""
    setup: Mapping[str, str] = field(default_factory=dict)

    def figure(self, name: str) -> Any:
        """Return a figure over the questions; None if none has it."""
        return measure(name).summary(self.rows) if self.rows else None

    def to_dict(self, study: Study) -> dict[str, Any]:
        """Return it as JSON values; rows of questions are in files beside it."""
        about = {"values": dict(self.values), "part": self.part, **self.setup, "file": self.file}
        shown = {}
        for name in study.figures:
            if (value := self.figure(name)) is not None:
                interval = measure(name).difference(self.rows)
                shown[name] = {"value": value} | ({"low": interval.low, "high": interval.high} if interval else {})
        return {**about, "questions": len(self.rows), **shown}


def gain(study: Study, measured: Sequence[Measured], one: Measured, name: str) -> Difference | None:
    """Return what a line gains over the baseline, with its interval, on the questions that both have.

    None for the baseline itself, if a side lacks the figure, and for a figure that questions do not have.
    """
    if study.against is None or one.values[study.against[0]] == study.against[1]:
        return None
    there = {**one.values, study.against[0]: study.against[1]}
    theirs = {row["query"]: row for other in measured if other.values == there for row in other.rows}
    both = [(row, theirs[row["query"]]) for row in one.rows if row["query"] in theirs]
    return measure(name).difference(*map(list, zip(*both, strict=True))) if both else None


def blocks(study: Study, measured: Sequence[Measured]) -> list[Block]:
    """Return claim and tables: the cells, the paper's figures beside ours, and what was run."""
    figures = [measure(name) for name in study.figures if any(one.figure(name) is not None for one in measured)]
    axes, lines = [*study.grid, METHOD], []
    for one in measured:
        cells = [one.values[axis] for axis in axes]
        for figure in figures:
            lead = gain(study, measured, one, figure.name)
            shown = figure.text(one.figure(figure.name))
            cells.append(shown if lead is None else f"{shown}, {lead:{figure.format}}")
        lines.append(cells)
    claim = f"The paper: {study.claim}" if study.claim and study.paper else study.claim
    found: list[Block] = [*([claim] if claim else []), Table([*axes, *(one.title for one in figures)], lines)]
    if study.against is not None:
        found.append(
            f"Behind a comma the gain over {study.against[1]}, with its 95% interval by paired bootstrap over "
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
    figures = [measure(name) for name in study.figures if name not in axes and any(name in row for row in rows)]
    lines = []
    for row in rows:
        point = {axis: str(row[axis]) for axis in axes if axis in row}
        cells = [point.get(axis, "all") for axis in axes]
        for one in figures:
            ours = [line.figure(one.name) for line in measured if point.items() <= line.values.items()]
            known = [value for value in ours if value is not None]
            cells += [one.text(row.get(one.name)), one.text(float(np.mean(known)) if known else None)]
        lines.append(cells)
    headings = [*axes, *(f"{one.title}{ours}" for one in figures for ours in ("", ", here"))]
    source = f", {study.published['source']}" if study.published.get("source") else ""
    return [Table(headings, lines, f"The paper's own figures{source}, beside ours:")] if rows else []
