"""What a study measured: figures of methods over cells, question by question, beside the paper's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.papers.study import METHOD, Study, as_list
from experiments.report.difference import Difference
from experiments.report.measures import Row, measure

Where = Mapping[str, str]
"""Values of axes, and of `method`, by name; those that are not named are averaged over."""


@dataclass(frozen=True)
class MethodInCell:
    """One method in one cell.

    Attributes:
        values: Value of each axis, and `method`.
        rows: Its figures of each question.
        summary: Its figures over all questions, as `corag evaluate` gives them.
        part: Spelling of the method that ran.
        file: File of the comparison, below the folder of the study.
        settings: Settings of that comparison.
    """

    values: Where
    rows: Sequence[Row]
    summary: Mapping[str, Any]
    part: str = ""
    file: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def is_at(self, where: Where) -> bool:
        """Return whether it has all of these values."""
        return all(self.values.get(name) == value for name, value in where.items())


@dataclass
class Measured:
    """All that a study measured.

    Attributes:
        study: The study, with what stands in where it is a stand-in.
        standin: Whether parts or data stood in for the paper's.
        stood_in: What stood in for the part that a value of an axis names, by axis and value.
        found: Each method of each cell.
        remarks: What a reader should know: what stood in for what, what went wrong.
        lines: Rows of a table of texts: data sets that were counted, or the contexts of a case study.
        seconds: Of this run; what was measured before is not in it.
    """

    study: Study
    standin: bool = False
    stood_in: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    found: list[MethodInCell] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def title(self) -> str:
        """Title of the table."""
        return f"{self.study.title}{' (stand-in)' if self.standin else ''}"

    def values(self, axis: str) -> list[str]:
        """Return the values of an axis, or the methods, that were measured, in the order of the study."""
        there = {one.values.get(axis) for one in self.found}
        order = self.study.methods if axis == METHOD else self.study.axes.get(axis, {})
        return [name for name in order if name in there]

    def shown(self, where: Where) -> list[str]:
        """Return the values of axes as tables and figures name them: what stood in, and for what."""
        stood_in = {axis: self.stood_in.get(axis, {}).get(value) for axis, value in where.items()}
        return [value if stood_in[axis] is None else f"{stood_in[axis]} for {value}" for axis, value in where.items()]

    def at(self, where: Where) -> list[MethodInCell]:
        """Return what has these values."""
        return [one for one in self.found if one.is_at(where)]

    def figure(self, name: str, where: Where) -> Difference | None:
        """Return a figure with its interval over questions; None where nothing has it.

        A question that several cells asked counts once, with the mean of its figures. A figure that questions do not
        have, such as a median, is averaged over cells, without an interval.
        """
        found, one = self.at(where), measure(name)
        if one.total is None and (interval := one.interval(_pooled(found, one.parts or (name,)))) is not None:
            return interval
        known = [each.summary[name] for each in found if each.summary.get(name) is not None]
        if not known:
            return None
        value = float(np.sum(known) if isinstance(known[0], int) else np.mean(known))
        return Difference(value, value, value, 1.0, len(known))

    def lead(self, name: str, where: Where) -> Difference | None:
        """Return what a method, or a value of an axis, gains over the baseline, with its interval.

        Both sides are of the same questions. None for the baseline itself, where a side lacks the figure, and for a
        figure that questions do not have.
        """
        if self.study.against is None:
            return None
        axis, baseline = self.study.against
        if where.get(axis) in (None, baseline):
            return None
        one = measure(name)
        figures = one.parts or (name,)
        mine = self.at(where)
        others = self.at({**where, axis: baseline})
        cells = {_beside(each, axis) for each in mine} & {_beside(each, axis) for each in others}
        ours = _by_question([each for each in mine if _beside(each, axis) in cells], figures)
        theirs = _by_question([each for each in others if _beside(each, axis) in cells], figures)
        both = [key for key in ours if key in theirs]
        return one.difference([ours[key] for key in both], [theirs[key] for key in both])

    def published(self, name: str, where: Where) -> Any:
        """Return the paper's own figure; None where it gives none for these values, or several that differ."""
        figures = self.study.published_figures
        if name not in figures:
            return None
        place = figures.index(name)
        given = {
            row["values"][place]
            for row in self.study.published.rows
            if all(axis not in row or value in as_list(row[axis]) for axis, value in where.items())
            and all(axis in where or len(self.values(axis)) < 2 for axis in row if axis != "values")
        } - {None, "-"}
        return given.pop() if len(given) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Return it all as JSON has it; rows of questions lie beside it."""
        return {
            "study": self.study.name,
            "paper": self.study.paper,
            "title": self.title,
            "claim": self.study.claim,
            "standin": self.standin,
            "seconds": round(self.seconds, 1),
            "remarks": self.remarks,
            "baseline": None if self.study.against is None else dict([self.study.against]),
            "cells": [dict(self._record(one)) for one in self.found],
            "lines": self.lines,
        }

    def _record(self, one: MethodInCell) -> Iterator[tuple[str, Any]]:
        yield from (("values", dict(one.values)), ("part", one.part), ("questions", len(one.rows)), ("file", one.file))
        for name in self.study.figures:
            for key, value in (("figure", self.figure(name, one.values)), ("lead", self.lead(name, one.values))):
                if value is not None:
                    yield (
                        f"{name}" if key == "figure" else f"{name}_lead",
                        {"value": value.mean, "low": value.low, "high": value.high},
                    )


def _beside(one: MethodInCell, axis: str) -> tuple[tuple[str, str], ...]:
    """Return all values but that of an axis."""
    return tuple((name, value) for name, value in one.values.items() if name != axis)


def _by_question(found: Sequence[MethodInCell], figures: Sequence[str]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the means of some figures by data set and question, of those that have all of them."""
    lists: dict[tuple[str, str], list[list[float]]] = {}
    for one in found:
        data = one.values.get("data", "")
        for row in one.rows:
            if all(row.get(name) is not None for name in figures):
                lists.setdefault((data, str(row["query"])), []).append([float(row[name]) for name in figures])
    return {key: dict(zip(figures, np.mean(rows, axis=0).tolist(), strict=True)) for key, rows in lists.items()}


def _pooled(found: Sequence[MethodInCell], figures: Sequence[str]) -> list[Row]:
    return list(_by_question(found, figures).values())
