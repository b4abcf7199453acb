"""Results of a study in W&B or as CSV files: a run a cell, and one with curves, table and figure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from experiments.papers.results import Found, Measured
from experiments.papers.study import METHOD
from experiments.run.track import numbers

PROJECT = "corag-papers"


def track(measured: Measured, kind: Any, out: Path, markdown: str) -> None:
    """Log what was measured; a tracker never makes a study fail.

    Runs have the study as their group, and as tags its paper and whether it is a stand-in.

    Args:
        measured: The results.
        kind: `wandb`, `csv` or `none`.
        out: Folder of the study.
        markdown: Its tables.
    """
    if kind == "none":
        return
    # Lightning takes seconds to import.
    from agent.training.loggers import open_logger, tolerated

    study = measured.study
    tags = (study.paper or "ablation", "stand-in" if measured.standin else "full")
    opened = partial(open_logger, project=PROJECT, group=study.name, tags=tags)
    for name, of_cell in _cells(measured).items():
        with opened(kind, _folder(out / "log" / name), of_cell[0].settings) as logger:
            if logger is not None:
                logger.log_metrics(
                    {f"{one.values[METHOD]}/{key}": value for one in of_cell for key, value in numbers(one.summary)}
                )
    with opened(kind, _folder(out / "log" / "summary"), {"study": study.name}) as logger:
        if logger is None:
            return
        axis = swept(measured) or ""
        for step, (x, figures) in enumerate(curves(measured).items()):
            number = {axis: float(x)} if _is_number(x) else {}
            logger.log_metrics({**number, **figures}, step=step)
        if kind == "wandb":
            with tolerated("take the result"):
                import wandb

                shown: dict[str, Any] = {"table": wandb.Html(f"<pre>{markdown}</pre>")}
                if (out / "figure.svg").exists():
                    shown["figure"] = wandb.Html((out / "figure.svg").read_text(encoding="utf-8"))
                logger.experiment.log(shown)


def swept(measured: Measured) -> str | None:
    """Return the axis along which a study draws its lines; None where there is none."""
    plot = measured.study.plot
    axis = None if plot is None else plot.along or plot.x
    return axis if axis in measured.study.axes else None


def curves(measured: Measured) -> dict[str, dict[str, float]]:
    """Return the figures of each series at each value of the axis that a study sweeps, by that value."""
    plot, axis = measured.study.plot, swept(measured)
    if plot is None or axis is None:
        return {}
    found: dict[str, dict[str, float]] = {}
    for x in measured.values(axis):
        for series in measured.values(plot.series) if plot.series else [""]:
            where = {axis: x} | ({plot.series: series} if plot.series else {})
            for name in measured.study.figures:
                if (value := measured.figure(name, where)) is not None:
                    found.setdefault(x, {})["/".join(filter(None, (series, name)))] = value.mean
    return found


def _cells(measured: Measured) -> Mapping[str, list[Found]]:
    cells: dict[str, list[Found]] = {}
    for one in measured.found:
        name = "-".join(value for axis, value in one.values.items() if axis != METHOD) or "all"
        cells.setdefault(name.replace("/", "-").replace(" ", "-"), []).append(one)
    return cells


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
