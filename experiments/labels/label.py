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
from corag.cli.console import progress
from corag.errors import DataError
from corag.selectors.base import check_budget
from experiments.evaluation.evaluate import versions
from experiments.labels.config import LabelConfig, LabelSource, listed
from experiments.labels.engines import Worker, label_here, label_on_ray
from experiments.labels.journals import journal_path, journal_paths, units_beside
from experiments.labels.merging import merge_tables
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
from experiments.run.journal import Journal, fingerprint, output_file

logger = logging.getLogger(__name__)

__all__ = [
    "FORMAT_VERSION", "LabelConfig", "LabelSource", "label", "merge_tables", "read_questions", "read_table",
    "write_questions", "write_table",
]  # fmt: skip

NOT_WORK = ("out", "merge", "shard", "engine", "address", "workers", "quiet")
"""Settings on which no label depends."""


def label(config: LabelConfig) -> Path:
    """Write the label table that a config describes, and its questions beside it.

    Of a share of the questions the journal alone, until all shares are done.

    Returns:
        The path of the table.

    Raises:
        InputError: The grid is empty or a reranker unknown.
        DataError: The data, or the journal of an earlier run, cannot be used.
    """
    if config.merge:
        return merge_tables(listed("merge", config.merge, str), config.out)
    check_budget(config.budget)
    grid, out, share = config.grid(), output_file(config.out), config.share()
    tasks = read_tasks(config)
    for source in range(len(tasks.sources)):
        tasks.check_pool(source)
    for combination in itertools.product(grid.iterations, grid.explorations, grid.cost_weights):
        search.SearchConfig(*combination)  # refuses what the search would refuse, before hours of work
    labeller = Labeller.of(config)
    settings = {name: value for name, value in asdict(config).items() if name not in NOT_WORK}
    work = fingerprint([FORMAT_VERSION, settings, tasks.content, versions()])
    if _is_done(out, work):
        logger.info("%s is complete already", out)
        return out
    own = journal_path(out, share)
    beside = units_beside(out, own, work)
    with Journal(own, work) as journal:
        mine = tasks.tasks if share is None else tasks.of_share(share)
        _label_missing(tasks, [task for task in mine if task.key not in beside], labeller, journal)
        units = {**units_beside(out, own, work), **journal.units}
        if all(task.key in units for task in tasks.tasks):
            metadata = {
                "format_version": FORMAT_VERSION,
                "work": work,
                "embedder": labeller.embedder.name,
                "settings": settings,
                "versions": versions(),
                "tokens": total(units[task.key]["work"] for task in tasks.tasks).to_dict(),
            }
            write_tables(out, tasks.tasks, units, metadata)
            for path in journal_paths(out):
                path.unlink(missing_ok=True)
    return out


def _label_missing(tasks: Tasks, mine: Sequence[Task], labeller: Labeller, journal: Journal) -> None:
    config = tasks.config
    missing = [task for task in mine if task.key not in journal.units]
    worker = Worker(tasks, labeller)
    worker.prepare(sorted({task.source for task in missing}), quiet=config.quiet)
    done = len(mine) - len(missing)
    with progress("label", quiet=config.quiet) as report:
        report(done, len(mine))

        def record(key: str, unit: Mapping[str, Any]) -> None:
            nonlocal done
            journal.add(key, unit)
            done += 1
            report(done, len(mine))
            if (error := unit["rows"][0]["error"]) is not None:
                logger.warning("question %s failed: %s", key, error)

        if config.engine == "ray" and missing:
            label_on_ray(config, missing, record)
        else:
            label_here(worker, missing, record)


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
