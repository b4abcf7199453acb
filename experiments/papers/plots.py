"""Figures of a study as SVG: few lines a panel, large type, panels below each other, so that a phone shows them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.papers.page import heading
from experiments.papers.results import Point, StudyResult
from experiments.papers.study import METHOD, Plot
from experiments.report.drawing import COLORS, MARKERS, finish, new_figure, plain, to_svg

WIDTH, HEIGHT = 5.6, 3.6
"""Inches of a panel."""
COLUMNS = 2
"""Most panels side by side."""
FONT = 13


def draw(result: StudyResult) -> str:
    """Return the figure of a study; empty where it has none, or nothing to draw."""
    plot = result.study.plot
    if plot is None or plot.kind == "cases" or not result.methods:
        return ""
    points = [{}] if plot.panels is None else [{plot.panels: value} for value in result.values(plot.panels)]
    if plot.kind == "histogram":
        names = [plot.x]
    else:
        names = [name for name in plot.y or result.study.figures[:1] if _is_known(result, name)]
    grid = [(point, name) for name in names for point in points]
    if not grid:
        return ""
    columns = min(COLUMNS, len(grid))
    rows = -(-len(grid) // columns)
    figure = new_figure(WIDTH * columns, HEIGHT * rows + 0.9)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, (point, name) in zip(panels, grid, strict=False):
        _KINDS[plot.kind](panel, result, plot, point, name)
        finish(panel)
        panel.tick_params(labelsize=FONT - 2)
        panel.xaxis.label.set_size(FONT)
        panel.yaxis.label.set_size(FONT)
        panel.set_title(plain(" ".join(point.values())), fontsize=FONT, fontweight="bold")
    for panel in panels[len(grid) :]:
        panel.set_axis_off()
    return _with_legend(figure, result)


def _is_known(result: StudyResult, name: str) -> bool:
    """Return whether there is anything to draw: judged figures, for instance, need a language model."""
    return any(
        result.figure(name, one.values) is not None or isinstance(result.published(name, one.values), int | float)
        for one in result.methods
    )


def _series(result: StudyResult, plot: Plot, point: Point) -> list[tuple[Point, dict[str, Any], str]]:
    """Return point, colour and marker (the same in all panels), and label of each line or group of bars."""
    if plot.series is None:
        return [(point, {"color": COLORS[0], "marker": MARKERS[0]}, "")]
    found: list[tuple[Point, dict[str, Any], str]] = []
    for index, name in enumerate(result.values(plot.series)):
        style = {"color": COLORS[index % len(COLORS)], "marker": MARKERS[index % len(MARKERS)]}
        if result.at(there := {**point, plot.series: name}):
            found.append((there, style, result.labels({plot.series: name})[0]))
    return found


def _lines(panel: Any, result: StudyResult, plot: Plot, point: Point, y: str) -> None:
    is_axis = plot.x in (*result.study.axes, METHOD)
    # Where x is a figure and no axis is along a line, each series is a point.
    axis = plot.x if is_axis else plot.along
    names = [""] if axis is None else result.values(axis)
    positions = _positions(names)
    series = _series(result, plot, point)
    for of_series, style, label in series:
        measured, papers = [], []
        for position, name in zip(positions, names, strict=True):
            there = of_series if axis is None else {**of_series, axis: name}
            figure, x_figure = result.figure(y, there), None if is_axis else result.figure(plot.x, there)
            x = position if is_axis else None if x_figure is None else x_figure.mean
            if figure is not None and x is not None:
                measured.append((x, figure.mean, figure.low, figure.high))
                if not is_axis and len(names) > 1:
                    offset = {"textcoords": "offset points", "xytext": (5, 6), "fontsize": FONT - 3}
                    panel.annotate(plain(name), (x, figure.mean), **offset)
            if is_axis and isinstance(paper := result.published(y, there), int | float):
                papers.append((position, paper))
        if measured:
            xs, ys, low, high = zip(*measured, strict=True)
            panel.plot(xs, ys, label=label, linewidth=2.2, markersize=8, **style)
            if is_axis and np.greater(high, low).any() and len(series) <= len(COLORS) // 2:
                panel.fill_between(xs, low, high, color=style["color"], alpha=0.10, linewidth=0)
        if papers:
            dotted = {"linestyle": ":", "linewidth": 1.4, "markersize": 7, "markerfacecolor": "white"}
            panel.plot(*zip(*papers, strict=True), **dotted, **style)
    if is_axis and names:
        panel.set_xticks(positions, names, rotation=0 if max(map(len, names)) < 12 else 20)
    panel.set_xlabel(heading(plot.x))
    panel.set_ylabel(heading(y))
    if plot.log:
        panel.set_yscale("log")


def _bars(panel: Any, result: StudyResult, plot: Plot, point: Point, y: str) -> None:
    names = result.values(plot.x)
    series = _series(result, plot, point)
    width = 0.8 / max(1, len(series))
    for number, (of_series, style, label) in enumerate(series):
        left = np.arange(len(names)) - 0.4 + width * (number + 0.5)
        there = [{**of_series, plot.x: name} for name in names]
        bars = [(x, figure) for x, at in zip(left, there, strict=True) if (figure := result.figure(y, at)) is not None]
        if not bars:
            continue
        errors = [[one.mean - one.low for _, one in bars], [one.high - one.mean for _, one in bars]]
        panel.bar(
            [x for x, _ in bars], [one.mean for _, one in bars], yerr=np.maximum(errors, 0), ecolor="#555555",
            color=style["color"], width=0.92 * width, label=label,
        )  # fmt: skip
        papers = [(x, result.published(y, at)) for x, at in zip(left, there, strict=True)]
        if marks := [(x, paper) for x, paper in papers if isinstance(paper, int | float)]:
            panel.plot(*zip(*marks, strict=True), linestyle="", marker="_", markersize=14, color="#000000")
    longest = max(map(len, names), default=0)
    turned = {} if longest * len(names) < 44 else {"rotation": 30, "ha": "right"}
    panel.set_xticks(range(len(names)), names, **turned)
    panel.set_ylabel(heading(y))
    if plot.log:
        panel.set_yscale("log")


def _histogram(panel: Any, result: StudyResult, plot: Plot, point: Point, x: str) -> None:
    series = [
        (values, style, label)
        for of_series, style, label in _series(result, plot, point)
        if (values := [row[x] for one in result.at(of_series) for row in one.rows if row.get(x) is not None])
    ]
    every = [value for values, _, _ in series for value in values]
    if not every:
        return
    whole = all(float(value).is_integer() for value in every)
    bins: Any = np.arange(min(every), max(every) + 2) - 0.5 if whole and max(every) - min(every) < 60 else 30
    for values, style, label in series:
        panel.hist(values, bins=bins, histtype="step", label=label, color=style["color"], linewidth=2.2)
    panel.xaxis.get_major_locator().set_params(integer=whole)
    panel.set_xlabel(f"{heading(x)} of a question")
    panel.set_ylabel("questions")


_KINDS: dict[str, Callable[[Any, StudyResult, Plot, Point, str], None]] = {
    "lines": _lines, "bars": _bars, "histogram": _histogram
}  # fmt: skip


def _with_legend(figure: Any, result: StudyResult) -> str:
    """Return the figure with its title above and one legend for all panels below."""
    entries: dict[str, Any] = {}
    for panel in figure.axes:
        handles, labels = panel.get_legend_handles_labels()
        entries |= {label: handle for handle, label in zip(handles, labels, strict=True) if label}
    columns = max(1, min(len(entries), int(figure.get_figwidth() * 8 / (6 + max(map(len, entries), default=1)))))
    lines = -(-len(entries) // columns) if entries else 0
    title = textwrap.fill(plain(result.title), int(figure.get_figwidth() * 9.5))
    above = 0.26 * (title.count("\n") + 1) + 0.15
    figure.set_figheight(height := figure.get_figheight() + 0.28 * lines + above)
    figure.tight_layout(rect=(0, (0.28 * lines + 0.1) / height, 1, 1 - above / height))
    figure.suptitle(title, fontsize=FONT + 1, y=1 - 0.1 / height, va="top")
    if entries:
        figure.legend(
            entries.values(), map(plain, entries), ncols=columns, loc="lower center", frameon=False, fontsize=FONT - 1
        )
    return to_svg(figure)


def _positions(names: Sequence[str]) -> list[float]:
    """Return where values are on an axis: numbers by size, if they are spread evenly enough; else in turn."""
    in_turn = list(map(float, range(len(names))))
    if len(names) < 3 or not all(re.fullmatch(r"-?\d*\.?\d+", name) for name in names):
        return in_turn
    numbers = list(map(float, names))
    steps = np.abs(np.diff(numbers))
    return in_turn if steps.min() <= 0 or steps.max() > 3.5 * steps.min() else numbers
