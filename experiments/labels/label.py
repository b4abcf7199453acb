"""Labels: how well each configuration of the search serves each question.

One row per question and configuration (reranker x iterations x exploration x cost weight). Iterations are
free: a search reports the best order after each of them, so one run answers for all counts. Values are
remembered per question and reranker, answers per question and context, the states of passages over all questions.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import search
from corag.checks import check_budget
from corag.cli.console import progress
from corag.errors import DataError
from corag.models.cluster import CLUSTER
from corag.models.ran import ran_in_all
from corag.models.runtime import WHERE, in_runtime
from experiments.labels.config import LabelConfig, listed
from experiments.labels.engines import LOCAL_BATCH, Worker, batches_of, label_on_ray
from experiments.labels.examples import Example, Examples, read_examples
from experiments.labels.question import Labeller
from experiments.labels.table import (
    FORMAT_VERSION,
    merge_tables,
    questions_path,
    read_table,
    write_questions,
    write_table,
)
from experiments.labels.work import total
from experiments.run.journal import TABLE, Journal, fingerprint, output_file, read_units, versions
from experiments.run.track import UNMEASURED, log_run, means, tracked

logger = logging.getLogger(__name__)

NOT_WORK = ("out", "merge", "shard", "quiet", *CLUSTER, *UNMEASURED, *WHERE)
"""Settings on which no label depends, but for rounding."""


@tracked
@in_runtime
def label(config: LabelConfig) -> Path:
    """Write the label table that a config describes, and its questions beside it; return its path.

    With a shard, only its journal until all shards are done.
    """
    if config.merge:
        return merge_tables(listed("merge", config.merge, str), config.out)
    check_budget(config.budget)
    grid, out, shard = config.grid(), output_file(config.out, TABLE), config.parsed_shard()
    examples = read_examples(config)
    examples.check_pools()
    for combination in itertools.product(grid.iterations, grid.explorations, grid.cost_weights):
        search.SearchConfig(*combination)  # refuses what the search would refuse, before hours of work
    labeller = Labeller.of(config)
    labeller.budget.check_room([example.query.question for example in examples.examples])
    settings = {name: value for name, value in asdict(config).items() if name not in NOT_WORK}
    work = fingerprint([FORMAT_VERSION, settings, examples.content, versions()])
    if _is_done(out, work):
        logger.info("%s is complete already", out)
        return out
    own = out.with_suffix(f".{'' if shard is None else '{}-of-{}.'.format(*shard)}journal.jsonl")
    beside = _units_beside(out, own, work)
    with Journal(own, work) as journal:
        mine = examples.examples if shard is None else examples.of_shard(*shard)
        _label_missing(examples, [example for example in mine if example.key not in beside], labeller, journal)
        units = {**_units_beside(out, own, work), **journal.units}
        if all(example.key in units for example in examples.examples):
            metadata = {
                "format_version": FORMAT_VERSION,
                "work": work,
                "embedder": labeller.embedder.name,
                "tokenizer": labeller.tokens.name,
                "settings": settings,
                "versions": versions(),
                "models": ran_in_all(units[example.key].get("models", ()) for example in examples.examples),
                "tokens": total(units[example.key]["work"] for example in examples.examples),
            }
            _write_tables(out, examples.examples, units, metadata)
            rows = [row for example in examples.examples for row in units[example.key]["rows"]]
            log_run("label", config.logger, out, out.stem, settings, means(rows, "reranker"))
            for path in _journal_paths(out):
                path.unlink(missing_ok=True)
    return out


def _label_missing(examples: Examples, mine: Sequence[Example], labeller: Labeller, journal: Journal) -> None:
    config = examples.config
    missing = [example for example in mine if example.key not in journal.units]
    worker = Worker(examples, labeller)
    worker.prepare(sorted({example.source for example in missing}), quiet=config.quiet)
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
            for batch in batches_of(missing, LOCAL_BATCH):
                for key, unit in worker.label(batch):
                    record(key, unit)


def _write_tables(
    out: Path, examples: Sequence[Example], units: Mapping[str, Mapping[str, Any]], metadata: Mapping[str, Any]
) -> None:
    """Write the questions and then the table, so that a table that is there is complete."""
    questions, rows = [], []
    for example in examples:
        query, unit = example.query, units[example.key]
        names = {"data": example.data, "query": query.id, "split": query.split}
        questions.append({**names, "group": example.group, "question": query.question, **unit["question"]})
        rows += [{**names, **row} for row in unit["rows"]]
    write_questions(out, questions, metadata)
    write_table(out, rows, metadata)


def _is_done(path: Path, work: str) -> bool:
    """Return whether this very work is done; a whole table of other work is not overwritten: `DataError`."""
    if not path.exists() or not questions_path(path).exists():
        return False
    try:
        found = read_table(path)[1].get("work")
    except DataError:
        return False
    if found != work:
        raise DataError(
            f"{path} holds labels made with other settings, data or versions; choose another output, or delete it to "
            "label anew"
        )
    return True


def _journal_paths(out: Path) -> list[Path]:
    """Return the journals of a table that are there."""
    if not out.parent.is_dir():
        return []
    name = re.compile(re.escape(out.stem) + r"(\.\d+-of-\d+)?\.journal\.jsonl")
    return sorted(path for path in out.parent.iterdir() if name.fullmatch(path.name))


def _units_beside(out: Path, own: Path, work: str) -> dict[str, Any]:
    """Return the units that the journals of other processes hold; those of other work are refused."""
    units: dict[str, Any] = {}
    for path in _journal_paths(out):
        if path != own:
            # It may be gone: whoever ended first wrote the table.
            with suppress(FileNotFoundError):
                units.update(read_units(path, work))
    return units
