"""Drawings of results, as SVG: quality against tokens, and values with intervals."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from corag.optional import require
from corag.text.visible import visible
from experiments.report.difference import Difference
from experiments.report.measures import Row, measure
from experiments.report.results import CHALLENGER, Result, selector_name

MARKERS = ("o", "s", "^", "D", "v")
"""Of methods that share a colour."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Okabe and Ito's palette, which stays distinct for colour-blind readers."""
LONGEST_NAME = 56
"""Characters of a name in one line below a plot."""

Point: TypeAlias = tuple[float, float, Difference | None]
"""Tokens, quality and its interval, if known."""
Points: TypeAlias = Sequence[Point]
Place: TypeAlias = tuple[str, int]
"""A method and its budget."""


def points(results: Sequence[Result], name: str) -> dict[Place, Point]:
    """Return tokens and a measure of each method at each budget; those that failed on a question are left out."""
    found: dict[Place, Point | None] = {}
    for result in results:
        for method in result.methods:
            if result.failures(method):
                continue
            if result.rows:
                found[method, result.budget] = _point(result.rows[method], name)
            elif (value := result.value(method, name)) is not None:
                tokens = float(result.value(method, "cost_tokens") or 0)
                found[method, result.budget] = (tokens, float(value), None)
    return {place: point for place, point in found.items() if point is not None}


def _point(rows: Sequence[Row], name: str) -> Point | None:
    """Return the mean tokens and a measure, with its interval, of the questions that have it."""
    rows = [row for row in rows if row.get(name) is not None]
    value = measure(name).difference(rows)
    return None if value is None else (float(measure("cost_tokens").summary(rows)), value.mean, value)


def mean_points(sets: Iterable[Sequence[Result]], name: str) -> dict[Place, Point]:
    """Return the means over sets of the points that all have, without intervals."""
    first, *others = [points(results, name) for results in sets]
    shared = [place for place in first if all(place in other for other in others)]
    means = {place: np.mean([one[place][:2] for one in (first, *others)], axis=0).tolist() for place in shared}
    return {place: (tokens, value, None) for place, (tokens, value) in means.items()}


def plot(drawn: Mapping[Place, Point], title: str) -> str:
    """Return an SVG of points against tokens, a line for each method over budgets."""
    lines: dict[str, list[Point]] = {}
    for (method, _), point in drawn.items():
        lines.setdefault(method, []).append(point)
    styled: list[tuple[str, Points, Mapping[str, Any]]] = []
    for number, (method, line) in enumerate(lines.items()):
        turn, color = divmod(number, len(COLORS))
        width = 2.0 if selector_name(method) == CHALLENGER else 1.0
        style = {"color": COLORS[color], "marker": MARKERS[turn % len(MARKERS)], "linewidth": width}
        styled.append((method, sorted(line, key=lambda point: point[:2]), style))
    return against_tokens(styled, title)


def against_tokens(lines: Sequence[tuple[str, Points, Mapping[str, Any]]], title: str) -> str:
    """Return an SVG of lines over tokens, each with its name in the legend, if any, and matplotlib's style."""
    figure = new_figure(4.8, 3.5)
    panel = figure.subplots()
    for name, points, style in lines:
        # A setting that is itself a list of settings makes a long name.
        label = textwrap.fill(plain(name), LONGEST_NAME) or None
        panel.plot([x for x, _, _ in points], [y for _, y, _ in points], label=label, **style)
        for x, _, bar in points:
            if bar is not None:
                panel.vlines(x, bar.low, bar.high, color=style["color"], linewidth=1.0, alpha=0.45)
    panel.set_xlabel("tokens of the selection (mean)")
    panel.set_ylabel(title)
    finish(panel)
    figure.legend(frameon=False, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, 0.0), handlelength=3.2)
    return to_svg(figure)


def finish(panel: Any) -> None:
    """Take away what a panel does not need."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.3)


def new_figure(width_inches: float, height_inches: float, **settings: Any) -> Any:
    """Return an empty figure; further settings are those of matplotlib's `Figure`."""
    # Not from pyplot, which keeps figures, and the back end of a user's own plots, for the whole process.
    return require("matplotlib.figure", "experiments").Figure(figsize=(width_inches, height_inches), **settings)


def to_svg(figure: Any) -> str:
    """Return a figure as SVG, the same for the same figure."""
    buffer = io.StringIO()
    # Ids of its own would differ from one process to the next.
    with require("matplotlib", "experiments").rc_context({"svg.hashsalt": "corag"}):
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def plain(text: str) -> str:
    """Return a text as a figure shows it: not as a formula, whatever it holds."""
    return visible(text).replace("$", r"\$")
