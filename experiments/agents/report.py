"""What `corag train evaluate` found: a sentence, a page, Markdown tables, figures, and W&B."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent.config import Tracker
from corag.cli.console import say, stdout, table
from experiments.agents.figures import BASE, CEILING, SIGNIFICANT
from experiments.agents.methods import AGENT, WITHOUT_MIN_LEAD
from experiments.run.drawing import COLORS, new_figure, to_svg
from experiments.run.page import Cell, Drawing, Table, render, with_interval
from experiments.run.tables import markdown_table
from experiments.run.track import numbers

HELD_OUT, UNSEEN, CURVE = "held-out", "unseen-folder", "learning-curve"
SHOWN = {
    "method": "method", "quality": "quality", "utility": "utility", "regret": "regret", "gap_closed": "gap closed",
    "interval": "95%", "p_questions": "p, questions", "p_seeds": "p, seeds", "cost_tokens": "tokens",
    "latency_ms": "search ms", "predict_us": "predict us", "fit_s": "fit s",
}  # fmt: skip
"""Columns of the tables and their headings."""
HEADLINE = ("method", "utility", "gap_closed", "interval", "p_questions")
"""Columns that a terminal of 80 characters has room for."""
FORMATS = {
    "method": "", "gap_closed": "+.3f", "cost_tokens": ".1f", "latency_ms": ".1f", "predict_us": ".0f", "fit_s": ".1f",
}  # fmt: skip
UNSEEN_SHOWN = (AGENT, WITHOUT_MIN_LEAD, "knn", "ridge")
"""Methods in the figure of unseen data folders."""

Rows = Sequence[Mapping[str, Any]]


def verdict(result: Mapping[str, Any]) -> str:
    """Return in a sentence whether the agent beats the best single configuration, and by what share of the gap.

    Without held-out questions, unseen data folders decide; empty where there is nothing to compare.
    """
    protocols = result["protocols"]
    if HELD_OUT in protocols:
        part = protocols[HELD_OUT]["all"]
        if (ours := _challenger(part["methods"])) is None:
            return ""
        others = [row for row in part["methods"] if row["method"] not in (ours["method"], BASE, CEILING)]
        best = max(others, key=lambda row: row["utility"], default=None)
        return (
            f"{ours['method']} {_judged(ours)} the best single configuration: it closes {ours['gap_closed']:+.0%} of "
            f"the gap to the oracle ({ours['gap_closed_low']:+.0%} to {ours['gap_closed_high']:+.0%}, p "
            f"{ours['p_questions']:.3f}, {part['questions']} held-out questions, {result['seeds']} "
            f"seed{'s' * (result['seeds'] != 1)})"
            + (f"; the best of the others, {best['method']}, {best['gap_closed']:+.0%}." if best else ".")
        )
    rows = [_challenger(part["methods"]) for part in protocols.get(UNSEEN, {}).values()]
    known = [row for row in rows if row is not None]
    if not known:
        return ""
    # As many tests as folders.
    certain = [row for row in known if row["p_questions"] < SIGNIFICANT / len(known)]
    ahead = sum(row["gap_closed"] > 0 for row in certain)
    return (
        f"On {len(known)} unseen data folders, {known[0]['method']} is ahead of the best single configuration beyond "
        f"chance on {ahead}, behind it on {len(certain) - ahead}, and not told apart from it on the others."
    )


def _challenger(rows: Rows) -> Mapping[str, Any] | None:
    """Return the row of the agent, else that of the best method that learns; None where there is neither."""
    able = [row for row in rows if row["method"] not in (BASE, CEILING, "oracle-reranker")]
    of_agent = [row for row in able if row["method"].startswith(AGENT)]
    return next(iter(of_agent), max(able, key=lambda row: row["utility"], default=None))


def _judged(row: Mapping[str, Any]) -> str:
    if row["p_questions"] >= SIGNIFICANT:
        return "is not told apart from"
    return "is ahead of" if row["gap_closed"] > 0 else "falls behind"


def page(result: Mapping[str, Any]) -> str:
    """Return a page in HTML: the verdict, a figure, a line for each method; all else folded."""
    drawings = [
        Drawing(title, draw_alone(draw, result), caption)
        for (draw, title, caption), parts in ((panel, result["protocols"].get(of)) for of, panel in PANELS.items())
        if parts
    ]
    parts = [(protocol, name, part) for protocol, of in result["protocols"].items() for name, part in of.items()]
    protocol, name, first = parts[0]
    of_part = "" if protocol == HELD_OUT else f", {protocol} {name}"
    rows = sorted(first["methods"], key=lambda row: -row["utility"])
    return render(
        title="The agent and what it has to beat",
        verdict=verdict(result),
        summary=f"{_said(result)}. Utility is what a method gains with the configurations that it names; "
        f"{BASE} names one for all questions, {CEILING} the best one of each.",
        lead=drawings[0],
        headline=Table(
            f"Each method, best first{of_part}", ["method", "utility", "gap closed", "p", "tokens", "search ms"],
            [_headline(row) for row in rows],
        ),
        remarks=[remark for *_, part in parts for remark in _left_out(part)],
        folded=[*drawings[1:], *(one for protocol, name, part in parts for one in _tables(protocol, name, part))],
        note="Versions: " + ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
    )  # fmt: skip


def _headline(row: Mapping[str, Any]) -> list[Cell | str]:
    line = _line(row)
    bounds = [f"{row[f'gap_closed_{end}']:+.2f}" for end in ("low", "high")]
    gap = line["gap_closed"] if row["method"] in (BASE, CEILING) else with_interval(line["gap_closed"], *bounds)
    kind = "text best" if row["method"].startswith(AGENT) else "text"
    return [Cell(row["method"], kind), line["utility"], gap, *(line[name] for name in HEADLINE_COSTS)]


HEADLINE_COSTS = ("p_questions", "cost_tokens", "latency_ms")


def _tables(protocol: str, name: str, part: Mapping[str, Any]) -> list[Table]:
    title = f"{protocol}, {name}: {part['questions']} questions"
    tables = [Table(title, [*SHOWN.values()], [[_line(row)[column] for column in SHOWN] for row in part["methods"]])]
    if "by_folder" in part:
        names = [row["method"] for row in part["methods"]]
        lines = [
            [folder, str(figures["questions"]), *(f"{figures[one]:.3f}" for one in names)]
            for folder, figures in part["by_folder"].items()
        ]
        tables.append(Table(f"{protocol}: utility by data folder", ["data", "questions", *names], lines))
    return tables


def _line(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures of a method as tables show them."""

    def text(name: str) -> str:
        if name == "interval":
            return f"{row['gap_closed_low']:+.2f} to {row['gap_closed_high']:+.2f}"
        return "-" if row[name] is None else format(row[name], FORMATS.get(name, ".4f"))

    return {name: text(name) for name in SHOWN}


def _said(result: Mapping[str, Any]) -> str:
    return (
        f"{result['questions']} questions, {result['configurations']} configurations, {result['metric']}, "
        f"{result['seeds']} seeds"
    )


def _left_out(part: Mapping[str, Any]) -> list[str]:
    return [f"Left out: {method}, {why}" for method, why in part.get("left_out", {}).items()]


def markdown(result: Mapping[str, Any]) -> str:
    """Return a result as Markdown."""
    text = ["# The agent and what it has to beat", verdict(result), f"{_said(result)}."]
    for protocol, parts in result["protocols"].items():
        for name, part in parts.items():
            for one in _tables(protocol, name, part):
                text += [f"## {one.title}", markdown_table(one.headings, one.rows)]
            text += _left_out(part)
    return "\n\n".join(filter(None, text)) + "\n"


def show(result: Mapping[str, Any]) -> None:
    """Print the verdict, and a line for each method in the first of its parts."""
    protocol, parts = next(iter(result["protocols"].items()))
    name, part = next(iter(parts.items()))
    lines = [_line(row) for row in sorted(part["methods"], key=lambda row: -row["utility"])]
    columns = {column: SHOWN[column] for column in HEADLINE}
    stdout().print(table(lines, columns, title=f"{protocol}, {name}: {part['questions']} questions"))
    if said := verdict(result):
        say(said)


def track(result: Mapping[str, Any], kind: Tracker, out: Path) -> None:
    """Log figures, and to W&B tables and the figure too; a tracker never makes a comparison fail."""
    if kind == "none":
        return
    # Lightning takes seconds to import.
    from agent.training.loggers import open_logger, tolerated

    with open_logger(kind, out, result["config"], project="corag-agent", tags=("evaluate-agent",)) as logger:
        assert logger is not None
        parts = [
            (f"{protocol}/{name}", of) for protocol, parts in result["protocols"].items() for name, of in parts.items()
        ]
        rows = [(f"{part}/{row['method']}", row) for part, of in parts for row in of["methods"]]
        logger.log_metrics({f"{of}/{name}": value for of, row in rows for name, value in numbers(row)})
        if kind != "wandb":
            return
        with tolerated("take the result"):
            import wandb

            for protocol, of_protocol in result["protocols"].items():
                lines = [{"part": name, **row} for name, part in of_protocol.items() for row in part["methods"]]
                data = wandb.Table(columns=list(lines[0]), data=[list(line.values()) for line in lines])
                logger.experiment.log({protocol: data})
            logger.experiment.log({"agents": wandb.Html((out / "agents.svg").read_text(encoding="utf-8"))})


def plot(result: Mapping[str, Any]) -> str:
    """Return an SVG with a panel for each protocol: gap closed, learning curve, lead on unseen data folders."""
    panels = [draw for name, (draw, *_) in PANELS.items() if result["protocols"].get(name)]
    figure = new_figure(6.0 * len(panels), 5.0)
    for draw, axis in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
        _finished(draw, axis, result)
    figure.tight_layout()
    return str(to_svg(figure))


def draw_alone(draw: Callable[[Any, Mapping[str, Any]], None], result: Mapping[str, Any]) -> str:
    """Return one panel as an SVG that a telephone has room for."""
    figure = new_figure(5.2, 4.2)
    _finished(draw, figure.subplots(), result)
    figure.tight_layout()
    return str(to_svg(figure))


def _finished(draw: Callable[[Any, Mapping[str, Any]], None], axis: Any, result: Mapping[str, Any]) -> None:
    draw(axis, result["protocols"])
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.3)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(frameon=False, fontsize=8)


def _bars(axis: Any, protocols: Mapping[str, Any]) -> None:
    rows = [row for row in protocols[HELD_OUT]["all"]["methods"] if row["method"] not in (BASE, CEILING)]
    rows = sorted(rows, key=lambda row: -row["gap_closed"])
    values = np.array([row["gap_closed"] for row in rows])
    bounds = np.array([[row["gap_closed_low"] for row in rows], [row["gap_closed_high"] for row in rows]])
    errors = np.maximum(0.0, [values - bounds[0], bounds[1] - values])
    colors = [COLORS[1] if row["method"].startswith(AGENT) else COLORS[0] for row in rows]
    axis.barh([row["method"] for row in rows], values, xerr=errors, color=colors, ecolor="#555555", capsize=2)
    axis.invert_yaxis()
    axis.axvline(0, color="#000000", linewidth=0.8)
    axis.set_xlabel("share of the oracle's gap closed (held-out questions)")


def _curve(axis: Any, protocols: Mapping[str, Any]) -> None:
    parts = {float(name): part["methods"] for name, part in protocols[CURVE].items()}
    names = [name for name in _methods(parts.values()) if name not in (BASE, CEILING, "oracle-reranker")]
    if HELD_OUT in protocols:
        parts[1.0] = protocols[HELD_OUT]["all"]["methods"]
    for place, name in enumerate(names):
        rows = [(share, row) for share, of_part in parts.items() for row in of_part if row["method"] == name]
        points = sorted((share, row["utility"]) for share, row in rows)
        color, width = COLORS[place % len(COLORS)], 2.2 if name == AGENT else 1.2
        axis.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name, color=color, linewidth=width)
    axis.set_xlabel("share of the training questions")
    axis.set_ylabel("utility on held-out questions")


def _unseen(axis: Any, protocols: Mapping[str, Any]) -> None:
    parts = protocols[UNSEEN]
    folders = {name: {row["method"]: row["utility"] for row in part["methods"]} for name, part in parts.items()}
    names = [name for name in _methods(part["methods"] for part in parts.values()) if name in UNSEEN_SHOWN]
    for place, name in enumerate(names):
        # A method may be left out of a part; every folder keeps its place.
        leads = [rows.get(name, np.nan) - rows[BASE] for rows in folders.values()]
        axis.plot(leads, list(folders), marker="os^v"[place % 4], linestyle="", label=name, color=COLORS[place])
    axis.axvline(0, color="#000000", linewidth=0.8)
    axis.set_xlabel("utility above the best single configuration")


PANELS: dict[str, tuple[Callable[[Any, Mapping[str, Any]], None], str, str]] = {
    HELD_OUT: (
        _bars, "Share of the oracle's gap closed",
        "0 is the best single configuration, 1 the oracle; bars are 95% intervals over resampled questions.",
    ),
    CURVE: (_curve, "With fewer training questions", "Utility on held-out questions by the share learned from."),
    UNSEEN: (_unseen, "On data folders that nothing was learned from", "Each folder in turn is left out of training."),
}  # fmt: skip
"""Of each protocol: what draws it, its heading, its caption."""


def _methods(parts: Iterable[Rows]) -> list[str]:
    """Return the names of the methods in any of these parts, each once."""
    return list(dict.fromkeys(row["method"] for rows in parts for row in rows))
