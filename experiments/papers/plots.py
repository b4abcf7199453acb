"""Figures of a study as SVG: few lines a panel, large type, panels below each other, so that a phone shows them."""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

import numpy as np

from experiments.papers.page import heading
from experiments.papers.results import Point, StudyResult
from experiments.papers.study import METHOD, Plot
from experiments.report.difference import Difference
from experiments.report.drawing import COLORS, MARKERS, finish, new_figure, plain, to_svg

WIDTH, HEIGHT = 5.6, 3.6
"""Inches of a panel."""
COLUMNS = 2
"""Most panels side by side."""
FONT = 13
PAPERS = "in the paper"
"""What the legend calls the paper's own figures."""


class Series(NamedTuple):
    """The values of one line, or of the bars of one colour; `style` is colour and marker, the same in all panels."""

    label: str
    style: dict[str, Any]
    names: list[str]  # of the values, as the axis has them
    measured: list[tuple[float, Difference, str]]  # position on the x axis, figure, name
    published: list[tuple[float, float]]  # position, the paper's figure


def draw(result: StudyResult) -> str:
    """Return the figure of a study; empty if it has none, or nothing to draw."""
    plot = result.study.plot
    if plot is None or not result.methods:
        return ""
    points = [{}] if plot.panels is None else [{plot.panels: value} for value in result.values(plot.panels)]
    names = [name for name in plot.y or result.study.figures[:1] if result.is_measured(name)]
    grid = [(point, name) for name in names for point in points]
    if not grid:
        return ""
    columns = min(COLUMNS, len(grid))
    rows = -(-len(grid) // columns)
    figure = new_figure(WIDTH * columns, HEIGHT * rows + 0.9, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, (point, name) in zip(panels, grid, strict=False):
        (_lines if plot.kind == "lines" else _bars)(panel, result, plot, point, name)
        finish(panel)
        panel.tick_params(labelsize=FONT - 2)
        panel.xaxis.label.set_size(FONT)
        panel.yaxis.label.set_size(FONT)
        panel.set_title(plain(" ".join(result.labels(point))), fontsize=FONT, fontweight="bold")
    for panel in panels[len(grid) :]:
        panel.set_axis_off()
    figure.suptitle(textwrap.fill(plain(result.study.title), int(figure.get_figwidth() * 8)), fontsize=FONT + 1)
    entries: dict[str, Any] = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        entries |= {label: handle for handle, label in zip(handles, labels, strict=True) if label}
    if entries:
        across = max(1, int(figure.get_figwidth() * 8 / (6 + max(map(len, entries)))))
        below = {"loc": "outside lower center", "frameon": False, "fontsize": FONT - 1}
        figure.legend(entries.values(), map(plain, entries), ncols=min(across, len(entries)), **below)
    return to_svg(figure)


def _series(result: StudyResult, plot: Plot, point: Point, y: str) -> list[Series]:
    """Return the values of lines or bars: x is an axis, whose values are spread evenly, or a figure."""
    is_axis = plot.x in (*result.study.grid, METHOD)
    # If x is a figure and no axis is along a line, each series is a point.
    axis = plot.x if is_axis else plot.along
    values = [] if axis is None else result.values(axis)
    names = [""] if axis is None else [result.labels({axis: value})[0] for value in values]
    listed = []
    lines = [point] if plot.series is None else [{**point, plot.series: name} for name in result.values(plot.series)]
    for number, of_series in enumerate(lines):
        if not result.at(of_series):
            continue
        style = {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}
        label = "" if plot.series is None else result.labels({plot.series: of_series[plot.series]})[0]
        measured, published = [], []
        for position, name in enumerate(names):
            there = of_series if axis is None else {**of_series, axis: values[position]}
            figure, across = result.figure(y, there), None if is_axis else result.figure(plot.x, there)
            x = float(position) if is_axis else None if across is None else across.mean
            if figure is not None and x is not None:
                measured.append((x, figure, name))
            if is_axis and isinstance(paper := result.published(y, there), int | float):
                published.append((float(position), float(paper)))
        listed.append(Series(label, style, names if is_axis else [], measured, published))
    return listed


def _lines(panel: Any, result: StudyResult, plot: Plot, point: Point, y: str) -> None:
    series = _series(result, plot, point, y)
    for line in series:
        if line.measured:
            xs, figures, names = zip(*line.measured, strict=True)
            panel.plot(xs, [f.mean for f in figures], label=line.label, linewidth=2.2, markersize=8, **line.style)
            if line.names and len(series) <= len(COLORS) // 2:
                low, high = [f.low for f in figures], [f.high for f in figures]
                panel.fill_between(xs, low, high, color=line.style["color"], alpha=0.10, linewidth=0)
            for x, figure, name in line.measured if not line.names and len(names) > 1 else ():
                offset = {"textcoords": "offset points", "xytext": (5, 6), "fontsize": FONT - 3}
                panel.annotate(plain(name), (x, figure.mean), **offset)
        if line.published:
            dotted = {"linestyle": ":", "linewidth": 1.4, "markersize": 7, "markerfacecolor": "white"}
            panel.plot(*zip(*line.published, strict=True), **dotted, **line.style)
            panel.plot([], [], color="#555555", linestyle=":", label=PAPERS)
    _finish_axes(panel, plot, y, series[0].names if series else [])


def _bars(panel: Any, result: StudyResult, plot: Plot, point: Point, y: str) -> None:
    series = _series(result, plot, point, y)
    width = 0.8 / max(1, len(series))
    for number, line in enumerate(series):
        shift = width * (number + 0.5) - 0.4
        figures = [figure for _, figure, _ in line.measured]
        errors = [[f.mean - f.low for f in figures], [f.high - f.mean for f in figures]]
        panel.bar(
            [x + shift for x, _, _ in line.measured], [f.mean for f in figures], yerr=np.maximum(errors, 0),
            ecolor="#555555", color=line.style["color"], width=0.92 * width, label=line.label,
        )  # fmt: skip
        panel.plot(
            [x + shift for x, _ in line.published], [paper for _, paper in line.published],
            linestyle="", marker="_", markersize=14, color="#000000", label=PAPERS if line.published else None,
        )  # fmt: skip
    _finish_axes(panel, plot, y, series[0].names if series else [])


def _finish_axes(panel: Any, plot: Plot, y: str, names: list[str]) -> None:
    if names:
        turned = {} if max(map(len, names)) * len(names) < 44 else {"rotation": 25, "ha": "right"}
        panel.set_xticks(range(len(names)), list(map(plain, names)), **turned)
    panel.set_xlabel("" if plot.x == METHOD else heading(plot.x))
    panel.set_ylabel(heading(y))
    if plot.log:
        panel.set_yscale("log")
