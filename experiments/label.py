"""Labels: how well each configuration of the search serves each question.

One row per question and configuration (reranker x iterations x exploration x cost weight). Iterations are
free: a search reports the best order after each of them, so one run answers for all counts. Values are
remembered per question and reranker, answers per question and context, the states of passages over all questions.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import search
from corag.console import progress
from corag.errors import DataError, MissingExtraError, ModelError, ReaderError
from corag.selectors.base import check_budget
from experiments.evaluate import versions
from experiments.journal import Journal, fingerprint, output_file
from experiments.labels.config import LabelConfig
from experiments.labels.question import Labeller
from experiments.labels.table import (
    FORMAT_VERSION,
    questions_path,
    read_questions,
    read_table,
    write_questions,
    write_table,
)
from experiments.labels.tasks import Task, Tasks, read_tasks
from experiments.labels.work import total
from experiments.pools import Pool

logger = logging.getLogger(__name__)

__all__ = ["FORMAT_VERSION", "LabelConfig", "label", "read_questions", "read_table", "write_questions", "write_table"]

REASONS_TO_STOP = (MissingExtraError, ModelError, ReaderError, OSError, MemoryError)
"""What would fail for every question alike; anything else is one question's own failure and is recorded."""

NOT_WORK = ("out", "quiet")
"""Settings on which no label depends."""


def label(config: LabelConfig) -> Path:
    """Write the label table that a config describes, and its questions beside it.

    Returns:
        The path of the table.

    Raises:
        InputError: The grid is empty or a reranker unknown.
        DataError: The data, or the journal of an earlier run, cannot be used.
    """
    check_budget(config.budget)
    grid, out = config.grid(), output_file(config.out)
    tasks = read_tasks(config)
    for combination in itertools.product(grid.iterations, grid.explorations, grid.cost_weights):
        search.SearchConfig(*combination)  # refuses what the search would refuse, before hours of work
    labeller = Labeller.of(config)
    settings = {name: value for name, value in asdict(config).items() if name not in NOT_WORK}
    work = fingerprint([FORMAT_VERSION, settings, tasks.content, versions()])
    if _is_done(out, work):
        logger.info("%s is complete already", out)
        return out
    with Journal(out.with_suffix(".journal.jsonl"), work) as journal:
        _label_missing(tasks, labeller, journal, config.quiet)
        metadata = {
            "format_version": FORMAT_VERSION,
            "work": work,
            "embedder": labeller.embedder.name,
            "settings": settings,
            "versions": versions(),
            "tokens": total(journal.units[task.key]["work"] for task in tasks.tasks).to_dict(),
        }
        write_tables(out, tasks.tasks, journal.units, metadata)
        journal.remove()
    return out


def _label_missing(tasks: Tasks, labeller: Labeller, journal: Journal, quiet: bool) -> None:
    pool: Pool | None = None
    opened = -1
    with progress("label", quiet=quiet) as report:
        for number, task in enumerate(tasks.tasks, start=1):
            if task.key not in journal.units:
                if task.source != opened:
                    pool, opened = tasks.open_pool(task.source, labeller.embedder), task.source
                assert pool is not None
                journal.add(task.key, label_task(labeller, task, pool))
            report(number, len(tasks.tasks))


def label_task(labeller: Labeller, task: Task, pool: Pool) -> dict[str, Any]:
    """Return what the journal keeps of a question; of one that failed, its error."""
    try:
        labelled = labeller.label(task.query, pool)
    except REASONS_TO_STOP:
        raise
    except Exception as error:  # noqa: BLE001  (one question must not stop the sweep; the table says what happened)
        logger.warning("question %s failed: %s: %s", task.key, type(error).__name__, error)
        labelled = labeller.failed(error)
    return asdict(labelled)


def write_tables(
    out: Path, tasks: Sequence[Task], units: Mapping[str, Mapping[str, Any]], metadata: Mapping[str, Any]
) -> None:
    """Write the questions and then the table, so that a table that is there is complete."""
    questions = [
        {
            "data": task.data,
            "query": task.query.id,
            "split": task.query.split,
            "group": task.group,
            "question": task.query.question,
            **units[task.key]["question"],
        }
        for task in tasks
    ]
    rows = [
        {"data": task.data, "query": task.query.id, "split": task.query.split, **row}
        for task in tasks
        for row in units[task.key]["rows"]
    ]
    write_questions(out, questions, metadata)
    write_table(out, rows, metadata)


def _is_done(path: Path, work: str) -> bool:
    if not path.exists() or not questions_path(path).exists():
        return False
    try:
        return bool(read_table(path)[1].get("work") == work)
    except DataError:
        return False
