"""The HTML report: a table for each budget, quality against tokens, and a policy tree. One file, nothing to load."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag.errors import DataError, InputError
from corag.optional import require
from corag.reply import Reply
from experiments.run.journal import output_file, write_atomically
from experiments.run.tables import COLUMNS, MOST_COLUMNS, columns_of, figure_of, format_figure

LOWER_IS_BETTER = (
    "cost_tokens", "over_budget", "orders_scored", "latency_ms_median", "latency_ms_p95", "diff_k", "redundancy",
    "change_in_tokens", "failed",
)  # fmt: skip
NEUTRAL = ("chunks", "value")
"""Values of different rerankers cannot be compared."""
MARKERS = ("o", "s", "^", "D")
"""Of methods that share a colour."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Okabe and Ito's palette, which stays distinct for colour-blind readers."""
MAX_CHILDREN_DRAWN = 6


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
    """Draw the report that a config describes; return its path.

    Raises:
        InputError: No result is named.
        DataError: A file is missing or is no result.
    """
    paths = [Path(part.strip()) for part in config.results.split(",") if part.strip()]
    if not paths:
        raise InputError("results is empty; give at least one JSON file that `corag evaluate --out` wrote")
    return write_report(output_file(config.out), [read_result(path) for path in paths], title=config.title)


def read_result(path: Path) -> dict[str, Any]:
    """Read what `corag evaluate --out` wrote.

    Raises:
        DataError: The file is missing or is no result.
    """
    try:
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        lacking = {"methods", "budget_tokens", "queries", "split", "versions"} - result.keys()
        if lacking or not result["methods"]:
            raise ValueError(f"it lacks {', '.join(sorted(lacking)) or 'methods'}")
        for row in result["methods"]:
            if lacking := {"method", *COLUMNS} - row.keys():
                raise ValueError(f"a method lacks {', '.join(sorted(lacking))}")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a result of `corag evaluate --out` ({error}); evaluate again") from error
    return result


def write_report(
    path: Path,
    results: Sequence[Mapping[str, Any]],
    *,
    title: str,
    reply: Reply | None = None,
) -> Path:
    """Write the report, and its figures as SVG files beside it.

    Args:
        path: The HTML file.
        results: Results of comparisons on the same questions, one per budget.
        title: Heading.
        reply: A question answered by method `corag`; its policy tree is drawn.
    """
    jinja = require("jinja2", "experiments")
    template = (Path(__file__).parent / "templates" / "report.html").read_text(encoding="utf-8")
    ordered = sorted(results, key=lambda result: result["budget_tokens"])
    figures = [
        {
            "file": "quality",
            "title": "Quality against tokens",
            "svg": jinja.utils.markupsafe.Markup(quality_plot(ordered)),
            "caption": "One line per method, one mark per budget. Up is better, left is cheaper.",
        }
    ]
    result = reply.selection.trace.result if reply is not None else None
    if reply is not None and result is not None and result.tree is not None:
        figures.append(
            {
                "file": "tree",
                "title": "One policy tree",
                "svg": jinja.utils.markupsafe.Markup(tree_plot(reply)),
                "caption": "Each node adds one candidate (numbered by the retriever's rank) to its parent's order; "
                "below it the value on the search's scale, on which this question's single candidates span 0 to 1. "
                f"Orange: the chosen order. Of each node's children the best {MAX_CHILDREN_DRAWN} are drawn.",
            }
        )
    first = ordered[0]
    html = (
        jinja.Environment(autoescape=True)
        .from_string(template)
        .render(
            title=title,
            summary=f"{first['queries']} questions of split {first['split']}. Bold: the best of a figure.",
            tables=[_table(result) for result in ordered],
            figures=figures,
            example=reply.to_dict() if reply is not None else None,
            note="Versions: " + ", ".join(f"{name} {version}" for name, version in first["versions"].items()),
        )
    )
    write_atomically(path, html)
    for figure in figures:
        write_atomically(path.with_name(f"{path.stem}-{figure['file']}.svg"), str(figure["svg"]))
    return path


def _table(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return headings and cells: a column for each method, or where there are many a line for each."""
    methods = result["methods"]
    lines = [[{"text": "", "best": False}, *({"text": method["method"], "best": False} for method in methods)]]
    for name, heading in columns_of(result).items():
        values = [figure_of(method, name, result["queries"]) for method in methods]
        known = [value for value in values if value is not None]
        best = None if name in NEUTRAL or not known else min(known) if name in LOWER_IS_BETTER else max(known)
        cells = [
            {"text": format_figure(name, value), "best": best is not None and value == best and len(set(known)) > 1}
            for value in values
        ]
        lines.append([{"text": heading, "best": False}, *cells])
    if len(methods) > MOST_COLUMNS:
        lines = [list(line) for line in zip(*lines, strict=True)]
    headings = [cell["text"] for cell in lines[0]]
    return {"title": f"Budget {result['budget_tokens']} tokens", "headings": headings, "rows": lines[1:]}


def quality_plot(results: Sequence[Mapping[str, Any]], metrics: Sequence[str] = ("rougeL", "evidence_recall")) -> str:
    """Return an SVG of quality against mean tokens, one panel per metric."""
    figure = new_figure(5.2 * len(metrics), 4.0)
    axes = figure.subplots(1, len(metrics), squeeze=False)
    methods = list(dict.fromkeys(row["method"] for result in results for row in result["methods"]))
    for panel, metric in zip(axes[0], metrics, strict=True):
        for place, method in enumerate(methods):
            rows = [
                row
                for result in results
                for row in result["methods"]
                if row["method"] == method and figure_of(row, metric, result["queries"]) is not None
            ]
            panel.plot(
                [row["cost_tokens"] for row in rows], [row[metric] for row in rows],
                marker=MARKERS[place // len(COLORS) % len(MARKERS)], label=method, color=COLORS[place % len(COLORS)],
                linewidth=1.6 if len(methods) <= MOST_COLUMNS else 1.0, markersize=5,
            )  # fmt: skip
        panel.set_xlabel("tokens of the selection (mean)")
        panel.set_ylabel({"rougeL": "ROUGE-L of the answer"}.get(metric, COLUMNS.get(metric, metric)))
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    if len(methods) <= MOST_COLUMNS:
        axes[0][0].legend(frameon=False, fontsize=9)
    else:
        # Within a panel so many names would hide what they name.
        axes[0][-1].legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
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
        ranked = sorted(
            range(span.start, span.stop),
            key=lambda child: (tree.order(child) not in chosen, -tree.value[child]),
        )
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
        axis.scatter(
            [x],
            [y],
            s=210,
            color="#d55e00" if on_path else "#e8eef4",
            edgecolors="#555555",
            linewidths=0.6,
            zorder=2,
        )
        name = "?" if node == tree.ROOT else str(int(tree.chunk[node]) + 1)
        axis.text(x, y, name, ha="center", va="center", fontsize=8, color="white" if on_path else "black", zorder=3)
        if node != tree.ROOT:
            axis.text(
                x,
                y - 0.26,
                f"{tree.value[node]:.2f}",
                ha="center",
                va="top",
                fontsize=6,
                color="#444444",
                zorder=3,
            )
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
