"""Figures of a run in W&B or as CSV files; a tracker never makes a run fail."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

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
    """Where the runs of a command go in W&B, and what is noted of them; each option overrides W&B's own variable.

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
def wandb_variables(wandb: Wandb) -> Iterator[None]:
    """Set W&B's variables inside the block, also for processes that it starts; options without a value stay."""
    before = dict(os.environ)
    os.environ.update({VARIABLES[name]: value for name, value in asdict(wandb).items() if value is not None})
    try:
        yield
    finally:
        for name in VARIABLES.values():
            os.environ.pop(name, None)
        os.environ.update({name: before[name] for name in VARIABLES.values() if name in before})


def grouped(wandb: Wandb, group: str) -> Wandb:
    """Return options with a group for runs that nobody gave one."""
    return replace(wandb, group=wandb.group or os.environ.get(VARIABLES["group"]) or group)


def tracked(function: Callable[[S], R]) -> Callable[[S], R]:
    """Run a function of settings with W&B's variables set as they say; a decorator."""

    @functools.wraps(function)
    def run(config: S) -> R:
        with wandb_variables(config.wandb):
            return function(config)

    return run


def check_logger(kind: Tracker, out: str | None) -> None:
    """Raise `InputError` for an unknown tracker, and for one without a folder for its files."""
    check_choice("logger", kind, Tracker)
    if kind != "none" and out is None:
        raise InputError(f"logger {kind!r} writes beside the result; give --out with it")


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
        out: What the command writes; the tracker's files are in `<out>.log/<name>` beside it.
        name: Name of the run.
        settings: Of the command.
        figures: Figures of each method or reranker; only numbers are logged.
        group: Runs that belong together.
    """
    if kind == "none":
        return
    # Lightning takes seconds to import.
    from agent.training.loggers import open_logger

    folder = out.with_suffix(".log") / name.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    values = {f"{of}/{name}": value for of, row in figures.items() for name, value in numbers(row).items()}
    public = without_secrets(settings)
    with open_logger(kind, folder, public, project=PROJECTS[command], group=group, tags=(command,)) as logger:
        if logger is not None:
            logger.log_metrics(values)


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a row that are numbers."""
    return {
        name: float(value)
        for name, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def means(rows: Sequence[Mapping[str, Any]], by: str) -> dict[str, dict[str, float]]:
    """Return the mean of each figure over the rows of each value of `by`; missing figures do not count."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for name, value in numbers(row).items():
            values.setdefault(str(row[by]), {}).setdefault(name, []).append(value)
    return {key: {name: fmean(of) for name, of in figures.items()} for key, figures in values.items()}
