"""Figures of a run in W&B or as CSV files; a tracker never makes a run fail."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

from agent.config import Tracker
from corag.checks import check_choice
from corag.errors import InputError
from corag.naming import without_secrets

PROJECTS = {"label": "corag-labels", "evaluate": "corag-evaluate", "tune": "corag-tune", "reproduce": "corag-papers"}
VARIABLES = {
    "project": "WANDB_PROJECT", "entity": "WANDB_ENTITY", "group": "WANDB_RUN_GROUP", "tags": "WANDB_TAGS",
    "notes": "WANDB_NOTES",
}  # fmt: skip
"""W&B's own variables of the same meaning."""
UNMEASURED = ("logger", "wandb")
"""Settings on which no result depends."""

S = TypeVar("S", bound="Tracking")
R = TypeVar("R")


@dataclass(frozen=True)
class Wandb:
    """Where the runs of a command go in W&B, and what is noted of them; each stands before W&B's own variable.

    Attributes:
        project: Project; by default one for each command, such as corag-evaluate.
        entity: User or team whose project it is; by default that of the login.
        group: Runs that belong together.
        tags: Tags, separated by commas, besides the command's own.
        notes: A note.
    """

    project: str | None = None
    entity: str | None = None
    group: str | None = None
    tags: str | None = None
    notes: str | None = None


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """Commands that log to W&B inherit this.

    Attributes:
        wandb: Project, entity, group, tags and notes of the runs in W&B.
    """

    wandb: Wandb = field(default_factory=Wandb)


@contextmanager
def noted(wandb: Wandb) -> Iterator[None]:
    """Let the runs of a block, and of processes that it starts, go where they are told; what is not told stays."""
    told = {VARIABLES[name]: value for name, value in asdict(wandb).items() if value is not None}
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def grouped(wandb: Wandb, group: str) -> Wandb:
    """Return notes with a group for runs that nobody gave one."""
    return replace(wandb, group=wandb.group or os.environ.get(VARIABLES["group"]) or group)


def tracked(function: Callable[[S], R]) -> Callable[[S], R]:
    """Run a function of settings with the notes that they make of its runs; a decorator."""

    @functools.wraps(function)
    def run(config: S) -> R:
        with noted(config.wandb):
            return function(config)

    return run


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
        command: One of `PROJECTS`, which is the project unless WANDB_PROJECT names one, and a tag.
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
    shown = without_secrets(settings)
    with open_logger(kind, folder, shown, project=PROJECTS[command], group=group, tags=(command,)) as logger:
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
