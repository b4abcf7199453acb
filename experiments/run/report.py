"""The HTML report: a table for each budget, quality against tokens, and a policy tree. One file, nothing to load."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag.checks import check_count
from corag.errors import DataError, InputError
from corag.optional import require
from corag.reply import Reply
from corag.text.visible import visible
from experiments.data.config import comma_separated
from experiments.run.journal import PAGE, output_file, write_atomically
from experiments.run.tables import FIGURES, MOST_COLUMNS, Result, figure_of, figures_of, remarks

MARKERS = ("o", "s", "^", "D")
"""Of methods that share a colour."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Okabe and Ito's palette, which stays distinct for colour-blind readers."""
MAX_CHILDREN_DRAWN = 6
PANELS, REPORT_PANELS = ("evidence_recall", "f1"), ("rougeL", "evidence_recall")
OVERVIEW = ("answer_in_context", "f1")
"""What figures show against tokens."""
CAPTIONS = {
    "quality": ("Quality against tokens", "One line per method, one mark per budget. Up is better, left is cheaper."),
    "tree": (
        "One policy tree",
        "Each node adds one candidate (numbered by the retriever's rank) to its parent's order; below it the value "
        "on the search's scale, on which this question's single candidates span 0 to 1. Orange: the chosen order. "
        f"Of each node's children the best {MAX_CHILDREN_DRAWN} are drawn.",
    ),
}
"""Heading and caption of each figure."""
VALUED, SUMMARIZED = ("naive", "corag", "upper"), ("edc2", "crag", "raptor")
"""Groups of methods that share a kind of line; all others cut the retriever's ranking, or take it in turn."""


@dataclass(frozen=True)
class ReportConfig:
    """Draw one HTML report from results of `corag evaluate`.

    Attributes:
        results: JSON files of `corag evaluate --out`, separated by commas; one per budget makes a curve.
        out: HTML file to write.
        title: Heading of the report.
    """

    results: str
    out: str = "runs/report.html"
    title: str = "CORAG: chunks chosen under a token budget"


def report(config: ReportConfig) -> Path:
    """Draw the report that a config describes; return its path."""
    if not (paths := [Path(name) for name in comma_separated(config.results)]):
        raise InputError("results is empty; give at least one JSON file that `corag evaluate --out` wrote")
    if len(set(paths)) < len(paths):
        raise InputError(f"results is {config.results!r}; give each file once")
    return write_report(output_file(config.out, PAGE), [read_result(path) for path in paths], title=config.title)


def read_result(path: Path) -> dict[str, Any]:
    """Read what `corag evaluate --out` wrote; anything else, or a result of no questions, is a `DataError`."""
    try:
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        lacking = {"methods", "budget_tokens", "queries", "split", "versions"} - result.keys()
        if lacking or not result["methods"]:
            raise ValueError(f"it lacks {', '.join(sorted(lacking)) or 'methods'}")
        for name, kind in (("methods", list), ("versions", dict), ("split", str), ("measures", list)):
            if not isinstance(result.get(name, kind()), kind):
                raise ValueError(f"{name} is {result[name]!r:.80}")
        for name in ("queries", "budget_tokens"):
            check_count(name, result[name], "a report needs at least one question")
        required = {"method", *(name for name, figure in FIGURES.items() if not figure.optional)}
        for row in result["methods"]:
            if lacking := required - row.keys():
                raise ValueError(f"a method lacks {', '.join(sorted(lacking))}")
            _check_figures(row, [*FIGURES, *map(str, result.get("measures", ()))])
        names = [row["method"] for row in result["methods"]]
        if len(set(names)) < len(names):
            raise ValueError(f"a method stands twice among {', '.join(names)}")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is not a result of `corag evaluate --out` ({error}); evaluate again") from error
    return result


def _check_figures(row: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise `ValueError` for a method without a name, or with a figure that is no finite number."""
    if not isinstance(row["method"], str):
        raise ValueError(f"a method is called {row['method']!r:.80}")
    for name in names:
        value = row.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if value is not None and not is_number:
            raise ValueError(f"{name} of method {row['method']!r} is {value!r:.80}")


def write_report(path: Path, results: Sequence[Result], *, title: str, reply: Reply | None = None) -> Path:
    """Write results of comparisons on the same questions, one per budget, as HTML, with its figures as SVG beside it.

    The policy tree of a `reply` by method `corag` is drawn.
    """
    jinja = require("jinja2", "experiments")
    template = (Path(__file__).parent / "templates" / "report.html").read_text(encoding="utf-8")
    ordered = sorted(results, key=lambda result: result["budget_tokens"])
    drawings = {"quality": quality_plot({"": ordered}, REPORT_PANELS)}
    if reply is not None and reply.selection.trace.result is not None and reply.selection.trace.result.tree is not None:
        drawings["tree"] = tree_plot(reply)
    first = ordered[0]
    page = jinja.Environment(autoescape=True, finalize=_shown).from_string(template)
    html = page.render(
        title=title,
        summary=f"{first['queries']} questions of split {first['split']}. Bold: the best of a figure.",
        tables=[_table(result) for result in ordered],
        remarks=remarks(ordered),
        figures=[
            {"title": CAPTIONS[name][0], "svg": jinja.utils.markupsafe.Markup(svg), "caption": CAPTIONS[name][1]}
            for name, svg in drawings.items()
        ],
        example=reply.to_dict() if reply is not None else None,
        note="Versions: " + ", ".join(f"{name} {version}" for name, version in first["versions"].items()),
    )
    write_atomically(path, html)
    for name, svg in drawings.items():
        write_atomically(path.with_name(f"{path.stem}-{name}.svg"), svg)
    return path


def _shown(value: Any) -> Any:
    """Return what a page shows for a value: a text without control characters."""
    return visible(value) if type(value) is str else value


def _label(text: str) -> str:
    """Return a text as a figure shows it: not as a formula, whatever it holds."""
    return visible(text).replace("$", r"\$")


def _table(result: Result) -> dict[str, Any]:
    """Return headings and cells: a column for each method, or where there are many a line for each."""
    methods = result["methods"]
    lines = [[{"text": text, "best": False} for text in ("", *(row["method"] for row in methods))]]
    for name, figure in figures_of(result).items():
        values = [figure_of(method, name, result["queries"]) for method in methods]
        known = {value for value in values if value is not None}
        best = max(known, key=lambda value: figure.better * value) if figure.better and len(known) > 1 else None
        cells = [{"text": figure.text(value), "best": best is not None and value == best} for value in values]
        lines.append([{"text": figure.heading, "best": False}, *cells])
    if len(methods) > MOST_COLUMNS:
        lines = [list(line) for line in zip(*lines, strict=True)]
    headings = [cell["text"] for cell in lines[0]]
    return {"title": f"Budget {result['budget_tokens']} tokens", "headings": headings, "rows": lines[1:]}


def quality_plot(results: Mapping[str, Sequence[Result]], metrics: Sequence[str] = PANELS) -> str:
    """Return an SVG of quality against mean tokens: a panel for each metric, a line for each method, a mark a budget.

    `results` has for each set of questions one result a budget. Several sets have a column of panels each. A metric
    that no method has a value of is left out.
    """
    rows = [row for of_set in results.values() for result in of_set for row in result["methods"]]
    metrics = [metric for metric in metrics if any(row.get(metric) is not None for row in rows)] or metrics[:1]
    panels = [(name, metric) for metric in metrics for name in results]
    columns = len(results) if len(results) > 1 else len(metrics)
    styles = _styles([row["method"] for row in rows])
    # As high as the panels, or as the legend beside them where the methods are many.
    figure = new_figure(3.9 * columns + 2.4, max(3.5 * len(panels) / columns, 0.5 + 0.19 * len(styles)))
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
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlabel("tokens of the selection (mean)")
        panel.set_ylabel(f"{FIGURES[metric].heading}{' of the answer' if metric in ('rougeL', 'f1') else ''}")
        if name:
            panel.set_title(f"{_label(name)} ({results[name][0]['queries']} questions)", fontsize=10)
    figure.tight_layout(rect=(0, 0, 1 - 2.4 / figure.get_figwidth(), 1))
    figure.legend(lines.values(), map(_label, lines), frameon=False, fontsize=8.5, loc="center right", handlelength=3.2)
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
