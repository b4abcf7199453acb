"""Drawings of results, as SVG: quality against tokens, and values with intervals."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from corag.optional import require
from corag.text.visible import visible
from experiments.report.curves import TABLE, Curves
from experiments.report.difference import Difference
from experiments.report.measures import measure
from experiments.report.results import CHALLENGER, DEFAULT, Result, selector_name

MARKERS = ("o", "s", "^", "D", "v")
"""Of methods that share a colour."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Okabe and Ito's palette, which stays distinct for colour-blind readers."""
MOST_NAMES = 4
"""Rows of names below a plot that are in one column."""
LONGEST_NAME = 56
"""Characters of a name in one line below a plot; two columns take names of half of that."""

Points: TypeAlias = Sequence[tuple[float, float, Difference | None]]
"""Tokens, quality and its interval, if known."""


def quality_plot(results: Sequence[Result], name: str) -> str:
    """Return an SVG of a measure against mean tokens: a line for each method, a mark for each budget."""
    lines: list[tuple[str, Points, Mapping[str, Any]]] = []
    for number, method in enumerate(dict.fromkeys(method for result in results for method in result.methods)):
        known = [result for result in results if method in result.methods and result.value(method, name) is not None]
        points = [
            (result.value(method, "cost_tokens"), result.value(method, name), result.interval(method, name))
            for result in known
        ]
        turn, color = divmod(number, len(COLORS))
        width = 2.0 if selector_name(method) == CHALLENGER else 0.8
        style = {"color": COLORS[color], "marker": MARKERS[turn % len(MARKERS)], "linewidth": width}
        lines.append((method, points, style))
    return against_tokens(lines, measure(name).title)


def curves_plot(curves: Curves) -> str:
    """Return an SVG of quality against tokens: the three curves, the methods compared, the default and the hull."""
    hull = curves.hull()
    # Beyond its best point the hull is level: more tokens need not be spent.
    corners = [*curves.means(hull), (float(curves.tokens.mean(axis=1).max()), curves.means(hull)[-1][1], None)]
    dotted = {"color": "#999999", "linestyle": ":", "linewidth": 1.2}
    lines: list[tuple[str, Points, Mapping[str, Any]]] = [("", corners, dotted)]
    known = {point.curve: None for point in curves.points if point.curve not in (DEFAULT, TABLE)}
    for number, name in enumerate(known):
        width = 2.0 if number == 0 else 1.4
        style = {"color": COLORS[number], "marker": MARKERS[number], "markersize": 5, "linewidth": width}
        lines.append((name, curves.means(curves.curve(name), bars=True), style))
    methods = [row for row, point in enumerate(curves.points) if point.curve == TABLE]
    for number, row in enumerate(methods):
        turn, color = divmod(number + len(known), len(COLORS))
        style = {"color": COLORS[color], "marker": "XPD<>"[turn % 5], "linestyle": "", "markersize": 6}
        lines.append((curves.points[row].method, curves.means([row]), style))
    star = {"color": "#000000", "marker": "*", "linestyle": "", "markersize": 13, "zorder": 5}
    lines.append(("the default, corag", curves.means(curves.curve(DEFAULT)), star))
    return against_tokens(lines, curves.measure.title)


def against_tokens(lines: Sequence[tuple[str, Points, Mapping[str, Any]]], title: str) -> str:
    """Return an SVG of lines over tokens, each with its name in the legend, if any, and matplotlib's style."""
    # A setting that is itself a list of settings makes a long name.
    names = [textwrap.fill(plain(name), LONGEST_NAME) for name, _, _ in lines]
    num_rows = sum(1 + name.count("\n") for name in names if name)
    columns = 1 + (num_rows > MOST_NAMES and max(map(len, names)) <= LONGEST_NAME // 2)
    below = 0.19 * -(-num_rows // columns) + 0.1
    figure = new_figure(4.8 + 0.8 * (columns > 1), 3.5 + below)
    panel = figure.subplots()
    for name, (_, points, style) in zip(names, lines, strict=True):
        panel.plot([x for x, _, _ in points], [y for _, y, _ in points], label=name or None, **style)
        for x, _, bar in points:
            if bar is not None:
                panel.vlines(x, bar.low, bar.high, color=style["color"], linewidth=1.0, alpha=0.45)
    panel.set_xlabel("tokens of the selection (mean)")
    panel.set_ylabel(title)
    finish(panel)
    figure.tight_layout(rect=(0, below / figure.get_figheight(), 1, 1))
    figure.legend(frameon=False, fontsize=8.5, loc="lower center", handlelength=3.2, ncols=columns)
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
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def plain(text: str) -> str:
    """Return a text as a figure shows it: not as a formula, whatever it holds."""
    return visible(text).replace("$", r"\$")
