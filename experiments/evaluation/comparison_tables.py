"""Tables and the figure of a comparison on several sets at several budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from corag.cli.console import say, stdout, table
from experiments.run.report import COLORS, MARKERS, new_figure, to_svg
from experiments.run.tables import figure_of

Result = Mapping[str, Any]

COLUMNS = {
    "cost_tokens": "tokens", "evidence_recall": "recall", "evidence_precision": "precision",
    "full_evidence": "all evidence", "f1": "F1", "tes": "TES", "diff_k": "diff-k", "latency_ms_median": "ms",
}  # fmt: skip
"""Figures of the table, and their headings."""
FORMATS = {"cost_tokens": ".0f", "diff_k": ".1f", "latency_ms_median": ".0f"}
PANELS = {"evidence_recall": "evidence recall", "f1": "F1 of the answer"}
"""What the figure shows against tokens, one row of panels each."""
VALUED = ("naive", "corag", "upper")
SUMMARIZED = ("edc2", "crag", "raptor")
"""Groups of methods that share a kind of line; all others cut the retriever's ranking, or take it in turn."""


def markdown(name: str, results: Sequence[Result]) -> str:
    """Return a Markdown table of one set: a line for each method, the budgets side by side in each cell."""
    lines = [
        f"### {_title(name, results)}",
        "",
        f"| method | {' | '.join(COLUMNS.values())} |",
        f"| --- |{' --- |' * len(COLUMNS)}",
    ]
    for method, cells in _cells(results).items():
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join([*lines, *(f"\n{remark}" for remark in _remarks(results)), ""])


def show(name: str, results: Sequence[Result]) -> None:
    """Print the same table."""
    console = stdout()
    # Cells that are cut or folded cannot be read; a line that is too long can be scrolled.
    console.width = max(console.width, 200)
    lines = [{"method": method, **dict(zip(COLUMNS, cells, strict=True))} for method, cells in _cells(results).items()]
    console.print(table(lines, {"method": "", **COLUMNS}, title=_title(name, results)))
    for remark in _remarks(results):
        say(remark)


def _title(name: str, results: Sequence[Result]) -> str:
    budgets = " / ".join(str(result["budget_tokens"]) for result in results)
    return f"{name}: {results[0]['queries']} questions at {budgets} tokens"


def _cells(results: Sequence[Result]) -> dict[str, list[str]]:
    """Return the cells of each method: one for each figure, with the budgets side by side."""
    by_method = [{row["method"]: row for row in result["methods"]} for result in results]
    return {
        method: [
            " / ".join(
                _text(name, figure_of(rows[method], name, result["queries"]))
                for rows, result in zip(by_method, results, strict=True)
            )
            for name in COLUMNS
        ]
        for method in by_method[0]
    }


def _text(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    # Most are shares: the digit before the point says nothing.
    return format(value, FORMATS[name]) if name in FORMATS else f"{value:.2f}".removeprefix("0")


def _remarks(results: Sequence[Result]) -> list[str]:
    """Return what went wrong, once for each method."""
    failures = {
        row["method"]: f"{row['method']} failed on {row['failed']} of {result['queries']} questions at "
        f"{result['budget_tokens']} tokens; the first: {row['error']}"
        for result in results
        for row in result["methods"]
        if row.get("failed")
    }
    left_out = [f"{name} is left out: {reason}" for name, reason in results[0].get("left_out", {}).items()]
    return [*failures.values(), *left_out]


def methods_plot(results: Mapping[str, Sequence[Result]]) -> str:
    """Return an SVG of quality against mean tokens: a column of panels for each set, a line for each method."""
    figure = new_figure(3.9 * len(results) + 2.4, 3.3 * len(PANELS))
    axes = figure.subplots(len(PANELS), len(results), squeeze=False)
    styles = _styles(list(dict.fromkeys(row["method"] for one in results.values() for row in one[0]["methods"])))
    lines: dict[str, Any] = {}
    for column, (name, of_set) in enumerate(results.items()):
        for row, (metric, heading) in enumerate(PANELS.items()):
            panel = axes[row][column]
            for method, style in styles.items():
                points = [
                    (found["cost_tokens"], value)
                    for result in of_set
                    for found in result["methods"]
                    if found["method"] == method
                    and found["cost_tokens"] > 0
                    and (value := figure_of(found, metric, result["queries"])) is not None
                ]
                if points:
                    (line,) = panel.plot(*zip(*points, strict=True), **style)
                    lines.setdefault(method, line)
            panel.grid(alpha=0.3)
            panel.spines[["top", "right"]].set_visible(False)
            if column == 0:
                panel.set_ylabel(heading)
            if row == 0:
                panel.set_title(f"{name} ({of_set[0]['queries']} questions)", fontsize=10)
            else:
                panel.set_xlabel("tokens of the selection (mean)")
    drawn = [method for method in styles if method in lines]
    # Beside the panels: within one so many names would hide what they name.
    figure.tight_layout(rect=(0, 0, 1 - 2.4 / figure.get_figwidth(), 1))
    figure.legend(
        [lines[method] for method in drawn], drawn, frameon=False, fontsize=8.5, loc="center right", handlelength=3.2
    )
    return to_svg(figure)


def _styles(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return how each method is drawn: searched and reranked ones thick, summaries dashed, the others thin."""
    groups: tuple[list[str], list[str], list[str]] = ([], [], [])
    for method in methods:
        name = method.split(":")[0]
        groups[0 if name in VALUED else 1 if name in SUMMARIZED else 2].append(method)
    looks: tuple[dict[str, Any], ...] = (
        {"linewidth": 2.0, "markersize": 6},
        {"linewidth": 1.2, "markersize": 5, "linestyle": "--"},
        {"linewidth": 0.8, "markersize": 4, "alpha": 0.75},
    )
    return {
        method: {
            **look,
            "color": COLORS[place % len(COLORS)],
            "marker": MARKERS[(number + place // len(COLORS)) % len(MARKERS)],
        }
        for number, (group, look) in enumerate(zip(groups, looks, strict=True))
        for place, method in enumerate(group)
    }
