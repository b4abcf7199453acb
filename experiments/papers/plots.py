"""Figures of a study as SVG: few lines a panel, large type, panels below each other, so that a phone shows them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.papers.page import heading
from experiments.papers.results import Measured, Where
from experiments.papers.study import METHOD, Plot
from experiments.report.drawing import COLORS, MARKERS, finish, new_figure, plain, to_svg

WIDTH, HEIGHT = 5.6, 3.6
"""Inches of a panel."""
COLUMNS = 2
"""Most panels side by side."""
FONT = 13


def draw(measured: Measured) -> str:
    """Return the figure of a study; empty where it has none, or nothing to draw."""
    plot = measured.study.plot
    if plot is None or plot.kind == "cases" or not measured.found:
        return ""
    ys = [y for y in plot.y or measured.study.figures[:1] if plot.kind == "histogram" or _is_known(measured, y)]
    if not ys:
        return ""
    panels = list(_panels(measured, plot))
    grid = [(where, y) for y in ys for where in panels]
    if plot.kind == "histogram":
        grid = [(where, plot.x) for where in panels]
    columns = min(COLUMNS, len(grid))
    rows = -(-len(grid) // columns)
    figure = new_figure(WIDTH * columns, HEIGHT * rows + 0.9)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, (where, y) in zip(axes, grid, strict=False):
        _KINDS[plot.kind](panel, measured, plot, where, y)
        _finish(panel, where)
    for panel in axes[len(grid) :]:
        panel.set_axis_off()
    return _with_legend(figure, measured)


def _is_known(measured: Measured, y: str) -> bool:
    """Return whether there is anything to draw: judged figures, for instance, need a language model."""
    return any(
        measured.figure(y, one.values) is not None or isinstance(measured.published(y, one.values), int | float)
        for one in measured.found
    )


def _panels(measured: Measured, plot: Plot) -> Iterator[dict[str, str]]:
    """Yield what each panel shows."""
    if plot.panels is None:
        yield {}
        return
    for value in measured.values(plot.panels):
        yield {plot.panels: value}


def _series(measured: Measured, plot: Plot, where: Where) -> dict[str, dict[str, str]]:
    """Return what each line or group of bars shows, by its name."""
    if plot.series is None:
        return {"": dict(where)}
    names = [name for name in measured.values(plot.series) if plot.series != METHOD or _is_drawn(plot, name)]
    return {name: {**where, plot.series: name} for name in names if measured.at({**where, plot.series: name})}


def _is_drawn(plot: Plot, method: str) -> bool:
    return not plot.methods or method in plot.methods


def _label(measured: Measured, plot: Plot, name: str) -> str:
    return measured.shown({plot.series: name})[0] if plot.series is not None else name


def _style(measured: Measured, plot: Plot, name: str) -> dict[str, Any]:
    """Return colour and marker of a series, the same in all panels."""
    names = measured.values(plot.series) if plot.series is not None else [""]
    place = names.index(name) if name in names else 0
    return {"color": COLORS[place % len(COLORS)], "marker": MARKERS[place % len(MARKERS)]}


def _lines(panel: Any, measured: Measured, plot: Plot, where: Where, y: str) -> None:
    is_axis = plot.x in (*measured.study.axes, METHOD)
    # Where x is a figure and nothing lies along a line, each series is a point.
    axis = plot.x if is_axis else plot.along
    names = [""] if axis is None else [one for one in measured.values(axis) if axis != METHOD or _is_drawn(plot, one)]
    places = _places(names) if is_axis else []
    for name, at in _series(measured, plot, where).items():
        style = _style(measured, plot, name)
        points, paper = [], []
        for place, value in enumerate(names):
            here = at if axis is None else {**at, axis: value}
            found = measured.figure(y, here)
            x = places[place] if is_axis else _value(measured, plot.x, here)
            if found is not None and x is not None:
                points.append((x, found.mean, found.low, found.high))
                if not is_axis and len(names) > 1:
                    place_of = {"textcoords": "offset points", "xytext": (5, 6), "fontsize": FONT - 3}
                    panel.annotate(plain(value), (x, found.mean), **place_of)
            if is_axis and isinstance(own := measured.published(y, here), int | float):
                paper.append((places[place], own))
        if points:
            xs, ys, low, high = zip(*points, strict=True)
            panel.plot(xs, ys, label=_label(measured, plot, name), linewidth=2.2, markersize=8, **style)
            if is_axis and np.greater(high, low).any() and len(_series(measured, plot, where)) <= len(COLORS) // 2:
                panel.fill_between(xs, low, high, color=style["color"], alpha=0.10, linewidth=0)
        if paper:
            dotted = {"linestyle": ":", "linewidth": 1.4, "markersize": 7, "markerfacecolor": "white"}
            panel.plot(*zip(*paper, strict=True), **dotted, **style)
    if is_axis and names:
        panel.set_xticks(places, names, rotation=0 if max(map(len, names)) < 12 else 20)
    panel.set_xlabel(heading(plot.x))
    panel.set_ylabel(heading(y))
    if plot.log:
        panel.set_yscale("log")


def _bars(panel: Any, measured: Measured, plot: Plot, where: Where, y: str) -> None:
    names = [name for name in measured.values(plot.x) if plot.x != METHOD or _is_drawn(plot, name)]
    series = _series(measured, plot, where)
    width = 0.8 / max(1, len(series))
    for number, (name, at) in enumerate(series.items()):
        left = np.arange(len(names)) - 0.4 + width * (number + 0.5)
        found = [measured.figure(y, {**at, plot.x: value}) for value in names]
        known = [(place, one) for place, one in zip(left, found, strict=True) if one is not None]
        if not known:
            continue
        places, values = [place for place, _ in known], [one.mean for _, one in known]
        errors = [[one.mean - one.low for _, one in known], [one.high - one.mean for _, one in known]]
        bars = {
            "color": _style(measured, plot, name)["color"],
            "width": 0.92 * width,
            "label": _label(measured, plot, name),
        }
        panel.bar(places, values, yerr=np.maximum(errors, 0), ecolor="#555555", **bars)
        paper = [measured.published(y, {**at, plot.x: value}) for value in names]
        marks = [(x, one) for x, one in zip(left, paper, strict=True) if isinstance(one, int | float)]
        if marks:
            panel.plot(*zip(*marks, strict=True), linestyle="", marker="_", markersize=14, color="#000000")
    longest = max(map(len, names), default=0)
    turned = {} if longest * len(names) < 44 else {"rotation": 30, "ha": "right"}
    panel.set_xticks(range(len(names)), names, **turned)
    panel.set_ylabel(heading(y))
    if plot.log:
        panel.set_yscale("log")


def _histogram(panel: Any, measured: Measured, plot: Plot, where: Where, x: str) -> None:
    values = {
        name: [row[x] for one in measured.at(at) for row in one.rows if row.get(x) is not None]
        for name, at in _series(measured, plot, where).items()
    }
    values = {name: found for name, found in values.items() if found}
    every = [value for found in values.values() for value in found]
    if not every:
        return
    whole = all(float(value).is_integer() for value in every)
    bins: Any = np.arange(min(every), max(every) + 2) - 0.5 if whole and max(every) - min(every) < 60 else 30
    for name, found in values.items():
        style = {"color": _style(measured, plot, name)["color"], "linewidth": 2.2}
        panel.hist(found, bins=bins, histtype="step", label=_label(measured, plot, name), **style)
    panel.xaxis.get_major_locator().set_params(integer=whole)
    panel.set_xlabel(f"{heading(x)} of a question")
    panel.set_ylabel("questions")


_KINDS: Mapping[str, Any] = {"lines": _lines, "bars": _bars, "histogram": _histogram}


def _finish(panel: Any, where: Where) -> None:
    finish(panel)
    panel.tick_params(labelsize=FONT - 2)
    panel.xaxis.label.set_size(FONT)
    panel.yaxis.label.set_size(FONT)
    if where:
        panel.set_title(plain(" ".join(where.values())), fontsize=FONT, fontweight="bold")


def _with_legend(figure: Any, measured: Measured) -> str:
    """Return the figure with its title above and one legend for all panels below."""
    entries: dict[str, Any] = {}
    for panel in figure.axes:
        handles, labels = panel.get_legend_handles_labels()
        entries |= {label: handle for handle, label in zip(handles, labels, strict=True) if label}
    height = figure.get_figheight()
    columns = max(1, min(len(entries), int(figure.get_figwidth() * 8 / (6 + max(map(len, entries), default=1)))))
    lines = -(-len(entries) // columns) if entries else 0
    title = textwrap.fill(plain(measured.title), int(figure.get_figwidth() * 9.5))
    above = 0.26 * (title.count("\n") + 1) + 0.15
    figure.set_figheight(height := height + 0.28 * lines + above)
    figure.tight_layout(rect=(0, (0.28 * lines + 0.1) / height, 1, 1 - above / height))
    figure.suptitle(title, fontsize=FONT + 1, y=1 - 0.1 / height, va="top")
    if entries:
        figure.legend(
            entries.values(), map(plain, entries), ncols=columns, loc="lower center", frameon=False, fontsize=FONT - 1
        )
    return to_svg(figure)


def _places(names: Sequence[str]) -> list[float]:
    """Return where values stand on an axis: numbers by size, where they are spread evenly enough; else in turn."""
    numbers = [float(one.group()) if (one := re.fullmatch(r"-?\d*\.?\d+", name)) else None for name in names]
    if any(one is None for one in numbers) or len(numbers) < 3:
        return list(map(float, range(len(names))))
    steps = np.abs(np.diff([float(one or 0) for one in numbers]))
    if steps.min() <= 0 or steps.max() > 3.5 * steps.min():
        return list(map(float, range(len(names))))
    return [float(one or 0) for one in numbers]


def _value(measured: Measured, name: str, where: Where) -> float | None:
    found = measured.figure(name, where)
    return None if found is None else found.mean
