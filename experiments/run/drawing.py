"""Drawings of results, as SVG: quality against tokens, and a policy tree."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from corag.optional import require
from corag.reply import Reply
from corag.text.visible import visible
from experiments.evaluation.leads import Interval
from experiments.run.tables import FIGURES, Result, figure_of

MARKERS = ("o", "s", "^", "D")
"""Of methods that share a colour."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Okabe and Ito's palette, which stays distinct for colour-blind readers."""
MAX_CHILDREN_DRAWN = 6
PANELS = ("evidence_recall", "f1")
OVERVIEW = ("answer_in_context", "f1")
"""What figures show against tokens."""
LONGEST_BESIDE = 28
"""Characters of a method's name that fit beside the panels."""
VALUED, SUMMARIZED = ("naive", "corag", "upper"), ("edc2", "crag", "raptor")
"""Groups of methods that share a kind of line; all others cut the retriever's ranking, or take it in turn."""


def quality_plot(
    results: Mapping[str, Sequence[Result]],
    metrics: Sequence[str] = PANELS,
    intervals: Mapping[tuple[int, str, str], Interval] | None = None,
    *,
    narrow: bool = False,
) -> str:
    """Return an SVG of quality against mean tokens: a panel for each metric, a line for each method, a mark a budget.

    `results` has for each set of questions one result a budget. Several sets have a column of panels each. A metric
    that no method has a value of is left out. `intervals` by budget, method and metric are drawn as bars. A `narrow`
    figure of one panel is read on a telephone, too: the names stand below it.
    """
    rows = [row for of_set in results.values() for result in of_set for row in result["methods"]]
    metrics = [metric for metric in metrics if any(row.get(metric) is not None for row in rows)] or metrics[:1]
    panels = [(name, metric) for metric in metrics for name in results]
    columns = len(results) if len(results) > 1 else len(metrics)
    styles = _styles([row["method"] for row in rows])
    height = 3.5 * len(panels) / columns
    # Long names stand below the panels, others beside them, where they may be higher than the panels.
    below = 0.22 * len(styles) + 0.1 if narrow or max(map(len, styles)) > LONGEST_BESIDE else 0.0
    beside = 0.0 if below else 2.4
    figure = new_figure(
        (4.8 if narrow else 3.9) * columns + beside, height + below if below else max(height, 0.5 + 0.19 * len(styles))
    )
    axes = figure.subplots(len(panels) // columns, columns, squeeze=False)
    lines: dict[str, Any] = {}
    for panel, (name, metric) in zip(axes.flat, panels, strict=True):
        for method, style in styles.items():
            points = [
                (row["cost_tokens"], value)
                for result in results[name]
                for row in result["methods"]
                if row["method"] == method and (value := figure_of(row, metric, result["queries"])) is not None
            ]
            (lines[method],) = panel.plot([x for x, _ in points], [y for _, y in points], **style)
            for result in results[name] if intervals else ():
                around = (intervals or {}).get((result["budget_tokens"], method, metric))
                at = next((row["cost_tokens"] for row in result["methods"] if row["method"] == method), None)
                if around is not None and at is not None:
                    panel.vlines(at, around.low, around.high, color=style["color"], linewidth=1.0, alpha=0.45)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlabel("tokens of the selection (mean)")
        panel.set_ylabel(f"{FIGURES[metric].heading}{' of the answer' if metric in ('rougeL', 'f1') else ''}")
        if name:
            panel.set_title(f"{_label(name)} ({results[name][0]['queries']} questions)", fontsize=10)
    figure.tight_layout(rect=(0, below / figure.get_figheight(), 1 - beside / figure.get_figwidth(), 1))
    place = "lower center" if below else "center right"
    figure.legend(lines.values(), map(_label, lines), frameon=False, fontsize=8.5, loc=place, handlelength=3.2)
    return to_svg(figure)


def overview_plot(results: Mapping[str, Sequence[Result]], metrics: Sequence[str] = OVERVIEW) -> str:
    """Return the same SVG of the means over all sets, each counting alike; what a set lacks does not count."""
    means = [_mean_result(of_budget) for of_budget in zip(*results.values(), strict=True)]
    return quality_plot({f"mean of {len(results)} sets": means}, metrics)


def _mean_result(results: Sequence[Result]) -> dict[str, Any]:
    """Return the means of results of one budget, with as many methods and the names of figures."""
    methods = []
    for rows in zip(*(result["methods"] for result in results), strict=True):
        known = {name: [row[name] for row in rows if row.get(name) is not None] for name in FIGURES}
        means = {name: sum(values) / len(values) for name, values in known.items() if values}
        methods.append(means | {"method": rows[0]["method"], "failed": sum(known["failed"])})
    return {**results[0], "queries": sum(result["queries"] for result in results), "methods": methods}


def _styles(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return how each method is drawn: searched and reranked ones thick, summaries dashed, the others thin."""
    looks: tuple[dict[str, Any], ...] = (
        {"linewidth": 2.0, "markersize": 6},
        {"linewidth": 1.2, "markersize": 5, "linestyle": "--"},
        {"linewidth": 0.8, "markersize": 4, "alpha": 0.75},
    )
    numbers = [0] * len(looks)
    styles = {}
    for method in dict.fromkeys(methods):
        name = method.partition("(")[0].split()[-1]
        group = 0 if name in VALUED else 1 if name in SUMMARIZED else 2
        turn, color = divmod(numbers[group], len(COLORS))
        styles[method] = {**looks[group], "color": COLORS[color], "marker": MARKERS[(group + turn) % len(MARKERS)]}
        numbers[group] += 1
    return styles


def interval_plot(
    labels: Sequence[str],
    values: Sequence[float],
    bounds: Sequence[tuple[float, float] | None],
    axis_label: str,
    *,
    points: Sequence[Sequence[float]] = (),
    marked: int = 0,
) -> str:
    """Return an SVG with a line for each value: a dot, its interval, and the points that it is the mean of.

    Args:
        labels: What each value is of.
        values: The values.
        bounds: Lower and upper end of each interval, where it is known.
        axis_label: What the values are.
        points: Values that each is the mean of.
        marked: Place of the one that stands out.
    """
    figure = new_figure(5.2, 1.0 + 0.32 * len(labels))
    axis = figure.subplots()
    for place, (value, bound) in enumerate(zip(values, bounds, strict=True)):
        color = COLORS[1] if place == marked else COLORS[0]
        errors = None if bound is None else [[max(0.0, value - bound[0])], [max(0.0, bound[1] - value)]]
        axis.errorbar(value, place, xerr=errors, fmt="o", color=color, ecolor=color, capsize=2)
    for place, of_one in enumerate(points):
        axis.plot(of_one, [place] * len(of_one), "|", color="#555555", markersize=7)
    axis.set_yticks(range(len(labels)), list(map(_label, labels)), fontsize=7.5)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.set_xlabel(axis_label)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.3)
    figure.tight_layout()
    return to_svg(figure)


def tree_plot(reply: Reply) -> str:
    """Return an SVG of the policy tree behind a reply's selection."""
    result = reply.selection.trace.result
    assert result is not None and result.tree is not None
    tree = result.tree
    chosen = {result.order[:length] for length in range(len(result.order) + 1)}

    def drawn_children(node: int) -> list[int]:
        span = tree.children(node)
        nodes = range(span.start, span.stop)
        ranked = sorted(nodes, key=lambda child: (tree.order(child) not in chosen, -tree.value[child]))
        return sorted(ranked[:MAX_CHILDREN_DRAWN], key=lambda child: -tree.value[child])

    places: dict[int, tuple[float, int]] = {}
    next_column = 0.0

    def place(node: int) -> float:
        nonlocal next_column
        columns = [place(child) for child in drawn_children(node)]
        if columns:
            column = (columns[0] + columns[-1]) / 2
        else:
            column, next_column = next_column, next_column + 1
        places[node] = (column, -int(tree.depth[node]))
        return column

    place(tree.ROOT)
    width = max(7.0, 0.42 * next_column)
    height = 1.0 + 1.1 * (1 + max(int(tree.depth[node]) for node in places))
    figure = new_figure(width, height)
    axis = figure.subplots()
    for node, (x, y) in places.items():
        on_path = tree.order(node) in chosen
        if node != tree.ROOT:
            above_x, above_y = places[int(tree.parent[node])]
            axis.plot([above_x, x], [above_y, y], color="#d55e00" if on_path else "#bbbbbb",
                      linewidth=2.2 if on_path else 0.8, zorder=1)  # fmt: skip
            axis.text(
                x, y - 0.26, f"{tree.value[node]:.2f}", ha="center", va="top", fontsize=6, color="#444444", zorder=3
            )
        color = "#d55e00" if on_path else "#e8eef4"
        axis.scatter([x], [y], s=210, color=color, edgecolors="#555555", linewidths=0.6, zorder=2)
        name = "?" if node == tree.ROOT else str(int(tree.chunk[node]) + 1)
        axis.text(x, y, name, ha="center", va="center", fontsize=8, color="white" if on_path else "black", zorder=3)
    axis.set_axis_off()
    axis.set_ylim(axis.get_ylim()[0] - 0.4, 0.4)
    figure.tight_layout()
    return to_svg(figure)


def new_figure(width_inches: float, height_inches: float) -> Any:
    """Return an empty figure."""
    # Not from pyplot, which keeps figures, and the back end of a user's own plots, for the whole process.
    return require("matplotlib.figure", "experiments").Figure(figsize=(width_inches, height_inches))


def to_svg(figure: Any) -> str:
    """Return a figure as SVG, the same for the same figure."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _label(text: str) -> str:
    """Return a text as a figure shows it: not as a formula, whatever it holds."""
    return visible(text).replace("$", r"\$")
