"""Results of `corag evaluate-agent` as tables, a figure, and in W&B."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent.training.loggers import open_logger, tolerated
from corag.cli.console import stdout, table
from experiments.agents.figures import BASE, CEILING
from experiments.agents.methods import AGENT, WITHOUT_MIN_LEAD
from experiments.run.drawing import COLORS, new_figure, to_svg
from experiments.run.tables import markdown_table

SHOWN = {
    "method": "", "quality": "quality", "utility": "utility", "regret": "regret", "gap_closed": "gap closed",
    "interval": "95%", "p_questions": "p, questions", "p_seeds": "p, seeds", "cost_tokens": "tokens",
    "latency_ms": "search ms", "predict_us": "predict us", "fit_s": "fit s",
}  # fmt: skip
"""Columns of the tables and their headings."""
FORMATS = {
    "method": "", "gap_closed": "+.3f", "cost_tokens": ".1f", "latency_ms": ".1f", "predict_us": ".0f", "fit_s": ".1f",
}  # fmt: skip
UNSEEN_SHOWN = (AGENT, WITHOUT_MIN_LEAD, "knn", "ridge")
"""Methods in the figure of unseen data folders."""

Rows = Sequence[Mapping[str, Any]]


def _lines(rows: Rows) -> list[dict[str, str]]:
    """Return figures as tables show them."""

    def text(row: Mapping[str, Any], name: str) -> str:
        if name == "interval":
            return f"{row['gap_closed_low']:+.2f} to {row['gap_closed_high']:+.2f}"
        return "-" if row[name] is None else format(row[name], FORMATS.get(name, ".4f"))

    return [{name: text(row, name) for name in SHOWN} for row in rows]


def markdown(result: Mapping[str, Any]) -> str:
    """Return a result as Markdown tables."""
    text = [
        "# The agent and what it has to beat",
        f"{result['questions']} questions, {result['configurations']} configurations, {result['metric']}, "
        f"{result['seeds']} seeds.",
    ]
    for protocol, parts in result["protocols"].items():
        for name, part in parts.items():
            lines = [[line[column] for column in SHOWN] for line in _lines(part["methods"])]
            text += [f"## {protocol}, {name}: {part['questions']} questions", markdown_table(SHOWN.values(), lines)]
            text += [f"Left out: {method}, {why}" for method, why in part.get("left_out", {}).items()]
            if "by_folder" in part:
                names = [row["method"] for row in part["methods"]]
                lines = [
                    [folder, str(figures["questions"]), *(f"{figures[one]:.3f}" for one in names)]
                    for folder, figures in part["by_folder"].items()
                ]
                text += ["Utility by data folder:", markdown_table(["", "questions", *names], lines)]
    return "\n\n".join(text) + "\n"


def show(result: Mapping[str, Any]) -> None:
    """Print the tables of a result."""
    console = stdout()
    console.width = max(console.width, 160)
    for protocol, parts in result["protocols"].items():
        for name, part in parts.items():
            title = f"{protocol}, {name}: {part['questions']} questions"
            console.print(table(_lines(part["methods"]), SHOWN, title=title))


def to_wandb(result: Mapping[str, Any], out: Path) -> None:
    """Log the tables and the figure; W&B never makes a comparison fail."""
    with open_logger("wandb", out, {}) as logger, tolerated("take the result"):
        import wandb

        assert logger is not None
        for protocol, parts in result["protocols"].items():
            rows = [{"part": name, **row} for name, part in parts.items() for row in part["methods"]]
            data = wandb.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])
            logger.experiment.log({protocol: data})
        logger.experiment.log({"agents": wandb.Html((out / "agents.svg").read_text(encoding="utf-8"))})


def plot(result: Mapping[str, Any]) -> str:
    """Return an SVG with a panel for each protocol: gap closed, learning curve, lead on unseen data folders."""
    held_out, curve, unseen = (result["protocols"].get(n, {}) for n in ("held-out", "learning-curve", "unseen-folder"))
    panels = [draw for draw, parts in ((_bars, held_out), (_curve, curve), (_unseen, unseen)) if parts]
    figure = new_figure(6.0 * len(panels), 5.0)
    for draw, axis in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
        draw(axis, result["protocols"])
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[1]:
            axis.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    return str(to_svg(figure))


def _bars(axis: Any, protocols: Mapping[str, Any]) -> None:
    rows = [row for row in protocols["held-out"]["all"]["methods"] if row["method"] not in (BASE, CEILING)]
    values = np.array([row["gap_closed"] for row in rows])
    bounds = np.array([[row["gap_closed_low"] for row in rows], [row["gap_closed_high"] for row in rows]])
    errors = np.maximum(0.0, [values - bounds[0], bounds[1] - values])
    colors = [COLORS[1] if row["method"].startswith(AGENT) else COLORS[0] for row in rows]
    axis.barh([row["method"] for row in rows], values, xerr=errors, color=colors, ecolor="#555555", capsize=2)
    axis.invert_yaxis()
    axis.axvline(0, color="#000000", linewidth=0.8)
    axis.set_xlabel("share of the oracle's gap closed (held-out questions, 95%)")


def _curve(axis: Any, protocols: Mapping[str, Any]) -> None:
    parts = {float(name): part["methods"] for name, part in protocols["learning-curve"].items()}
    names = [name for name in _methods(parts.values()) if name not in (BASE, CEILING, "oracle-reranker")]
    if "held-out" in protocols:
        parts[1.0] = protocols["held-out"]["all"]["methods"]
    for place, name in enumerate(names):
        rows = [(share, row) for share, of_part in parts.items() for row in of_part if row["method"] == name]
        points = sorted((share, row["utility"]) for share, row in rows)
        color, width = COLORS[place % len(COLORS)], 2.2 if name == AGENT else 1.2
        axis.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name, color=color, linewidth=width)
    axis.set_xlabel("share of the training questions")
    axis.set_ylabel("utility on held-out questions")


def _unseen(axis: Any, protocols: Mapping[str, Any]) -> None:
    parts = protocols["unseen-folder"]
    folders = {name: {row["method"]: row["utility"] for row in part["methods"]} for name, part in parts.items()}
    names = [name for name in _methods(part["methods"] for part in parts.values()) if name in UNSEEN_SHOWN]
    for place, name in enumerate(names):
        # A method may be left out of a part; every folder keeps its place.
        leads = [rows.get(name, np.nan) - rows[BASE] for rows in folders.values()]
        axis.plot(leads, list(folders), marker="os^v"[place % 4], linestyle="", label=name, color=COLORS[place])
    axis.axvline(0, color="#000000", linewidth=0.8)
    axis.set_xlabel("utility above the best single configuration (unseen data folder)")


def _methods(parts: Iterable[Rows]) -> list[str]:
    """Return the names of the methods in any of these parts, each once."""
    return list(dict.fromkeys(row["method"] for rows in parts for row in rows))
