"""Figures of a run in W&B or as CSV files; a tracker never makes a run fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from agent.config import Tracker
from corag.checks import check_choice
from corag.errors import InputError

PROJECTS = {"label": "corag-labels", "evaluate": "corag-evaluate"}


def check_logger(kind: Tracker, out: str | None) -> None:
    """Raise `InputError` for an unknown tracker, and for one without a place for its files."""
    check_choice("logger", kind, Tracker)
    if kind != "none" and out is None:
        trackers = " or ".join(name for name in get_args(Tracker) if name != "none")
        raise InputError(f"logger {kind!r} writes beside the result; give --out with {trackers}")


def log_run(
    command: str,
    kind: Tracker,
    out: Path,
    name: str,
    settings: Mapping[str, Any],
    figures: Mapping[str, Mapping[str, Any]],
    *,
    group: str | None = None,
) -> None:
    """Log the figures of one run.

    Args:
        command: `label` or `evaluate`, which is the project unless WANDB_PROJECT names one, and a tag.
        kind: `wandb`, `csv` or `none`.
        out: What the command writes; the tracker's files stand in `<out>.log/<name>` beside it.
        name: Name of the run.
        settings: Of the command.
        figures: Figures of each method or reranker; what is no number is left out.
        group: Runs that belong together.
    """
    if kind == "none":
        return
    # Lightning takes seconds to import.
    from agent.training.loggers import open_logger

    folder = out.with_suffix(".log") / name.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    with open_logger(kind, folder, settings, project=PROJECTS[command], group=group, tags=(command,)) as logger:
        if logger is not None:
            logger.log_metrics({f"{of}/{key}": value for of, row in figures.items() for key, value in numbers(row)})


def numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the figures of a row that are numbers."""
    for name, value in row.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)


def means(rows: Sequence[Mapping[str, Any]], by: str) -> dict[str, dict[str, float]]:
    """Return the mean of each figure over the rows of each value of `by`; missing figures do not count."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for name, value in numbers(row):
            values.setdefault(str(row[by]), {}).setdefault(name, []).append(value)
    return {key: {name: sum(of) / len(of) for name, of in figures.items()} for key, figures in values.items()}
