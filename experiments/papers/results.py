"""What a study measured: figures of methods over cells, question by question, beside the paper's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.papers.study import METHOD, Study
from experiments.report.difference import Difference
from experiments.report.measures import Row, measure

Point = Mapping[str, str]
"""Values of axes, and of `method`, by name; what is not named is averaged over."""


@dataclass(frozen=True)
class MethodInCell:
    """One method in one cell.

    Attributes:
        values: Value of each axis, and `method`.
        rows: Its figures of each question.
        summary: Its figures over all questions, as `corag evaluate` gives them.
        part: Spelling of the method that ran.
        file: File of the comparison, below the folder of the study.
        setup: Questions, budget and the like of the comparison, by name.
    """

    values: Point
    rows: Sequence[Row]
    summary: Mapping[str, Any]
    part: str = ""
    file: str = ""
    setup: Mapping[str, str] = field(default_factory=dict)

    def beside(self, axis: str) -> tuple[tuple[str, str], ...]:
        """Return its values but for one axis."""
        return tuple((name, value) for name, value in self.values.items() if name != axis)


@dataclass
class StudyResult:
    """All that a study measured.

    Attributes:
        study: The study, as it was measured.
        replaced: What replaces the data set or part that a value of an axis names, by axis and value.
        differences: Settings and methods that are not those of the full study: name, there, here.
        methods: Each method of each cell.
        remarks: What went wrong.
    """

    study: Study
    replaced: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    differences: Sequence[tuple[str, str, str]] = ()
    methods: list[MethodInCell] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def values(self, axis: str) -> list[str]:
        """Return the values of an axis, or the methods, that were measured, in the order of the study."""
        measured = {method.values.get(axis) for method in self.methods}
        order = self.study.methods if axis == METHOD else self.study.grid.get(axis, {})
        return [name for name in order if name in measured]

    def is_measured(self, name: str) -> bool:
        """Return whether any method has a figure: judged ones, for instance, need a language model."""
        return any(self.figure(name, method.values) is not None for method in self.methods)

    def labels(self, point: Point) -> list[str]:
        """Return the values of axes as tables and figures name them, with what replaces them."""
        shown = ((self.replaced.get(axis, {}).get(value), value) for axis, value in point.items())
        return [f"{name} for {value}" if name else value for name, value in shown]

    def at(self, point: Point) -> list[MethodInCell]:
        """Return the methods in cells that have these values."""
        return [method for method in self.methods if point.items() <= method.values.items()]

    def figure(self, name: str, point: Point) -> Difference | None:
        """Return a figure with its interval over questions; None if nothing has it.

        A question that several cells asked counts once, with the mean of its figures. A figure that questions do not
        have, such as a median, is averaged over cells, without an interval.
        """
        # A cell that keeps none of its questions has no figures; its summary is over all that were asked.
        chosen, figure = [method for method in self.at(point) if method.rows], measure(name)
        rows = list(_by_question(chosen, figure.parts or (name,)).values())
        if figure.total is None and (interval := figure.difference(rows)) is not None:
            return interval
        known = [method.summary[name] for method in chosen if method.summary.get(name) is not None]
        if not known:
            return None
        value = float(np.sum(known) if isinstance(known[0], int) else np.mean(known))
        return Difference(value, value, value, 1.0, len(known))

    def gain(self, name: str, point: Point) -> Difference | None:
        """Return what a method, or a value of an axis, gains over the baseline, with its interval.

        Both sides are of the same questions. None for the baseline itself, if a side lacks the figure, and for a
        figure that questions do not have.
        """
        if self.study.against is None:
            return None
        axis, baseline = self.study.against
        if point.get(axis) in (None, baseline):
            return None
        figure = measure(name)
        sides = [self.at(point), self.at({**point, axis: baseline})]
        cells = set.intersection(*({method.beside(axis) for method in side} for side in sides))
        ours, theirs = (
            _by_question([method for method in side if method.beside(axis) in cells], figure.parts or (name,))
            for side in sides
        )
        both = [key for key in ours if key in theirs]
        return figure.difference([ours[key] for key in both], [theirs[key] for key in both])

    def published(self, name: str, point: Point) -> Any:
        """Return the paper's own figure; None if it gives none for these values, or several that differ."""
        figures = self.study.published_figures
        if name not in figures:
            return None
        index = figures.index(name)
        given = {
            row["values"][index]
            for row in self.study.published.rows
            if all(row.get(axis, value) == value for axis, value in point.items())
            and all(axis in point or len(self.values(axis)) < 2 for axis in row if axis != "values")
        } - {None, "-"}
        return given.pop() if len(given) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Return it all as JSON values; rows of questions are in files beside it."""
        return {
            "study": self.study.name,
            "paper": self.study.paper,
            "title": self.study.title,
            "claim": self.study.claim,
            "differences": [list(row) for row in self.differences],
            "remarks": self.remarks,
            "baseline": None if self.study.against is None else dict([self.study.against]),
            "cells": [self._record(method) for method in self.methods],
        }

    def _record(self, method: MethodInCell) -> dict[str, Any]:
        record = {
            "values": dict(method.values),
            "part": method.part,
            **method.setup,
            "questions": len(method.rows),
            "file": method.file,
        }
        for name in self.study.figures:
            for key, value in (
                (name, self.figure(name, method.values)),
                (f"{name}_lead", self.gain(name, method.values)),
            ):
                if value is not None:
                    record[key] = {"value": value.mean, "low": value.low, "high": value.high}
        return record


def _by_question(methods: Sequence[MethodInCell], figures: Sequence[str]) -> dict[tuple[str, str], Row]:
    """Return the means of some figures, and the group, of each question that has all of them, by data set and question.

    Questions that share a document are one group, as `experiments.report.difference` resamples them.
    """
    lists: dict[tuple[str, str], list[list[float]]] = {}
    groups: dict[tuple[str, str], str] = {}
    for method in methods:
        data = method.values.get("data", "")
        for row in method.rows:
            if all(row.get(name) is not None for name in figures):
                key = (data, str(row["query"]))
                lists.setdefault(key, []).append([float(row[name]) for name in figures])
                groups[key] = f"{data} {row.get('group', row['query'])}"
    return {
        key: {**dict(zip(figures, np.mean(rows, axis=0).tolist(), strict=True)), "group": groups[key]}
        for key, rows in lists.items()
    }
