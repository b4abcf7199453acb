"""`corag label`: how well each configuration serves each question.

Questions are the units of work: a journal keeps finished ones, shards and Ray workers share them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from corag.cli.console import progress
from corag.errors import DataError
from corag.models.cluster import CLUSTER, cluster_workers
from corag.models.runtime import PLACEMENT_SETTINGS, in_runtime, merge_records, recording
from experiments.data.pools import Pool
from experiments.evaluation.config import EvaluateConfig
from experiments.labels.config import LabelConfig
from experiments.labels.examples import Example, Examples, read_examples
from experiments.labels.measure import Labeller
from experiments.labels.table import read_metadata, write_labels
from experiments.run.journal import TABLE, Journal, fingerprint, output_file, read_units, versions
from experiments.run.track import UNMEASURED, log_run, means

logger = logging.getLogger(__name__)

NOT_WORK = ("out", "shard", "quiet", *CLUSTER, *UNMEASURED, *PLACEMENT_SETTINGS)
"""Settings on which no label depends, but for rounding."""
LOCAL_BATCH, RAY_BATCH = 64, 8
"""Questions whose candidates are embedded at a time; questions given to a worker at a time."""

Unit = dict[str, Any]
"""What the journal keeps of a question: `rows`, one a configuration; `question`, its vectors; `models`, what ran."""


@in_runtime
def label(config: LabelConfig) -> Path:
    """Write the label table that a config describes; return its path.

    With a shard, only its journal until all shards are done.
    """
    out, shard = output_file(config.out, TABLE), config.parsed_shard()
    examples = read_examples(config)
    examples.check_pools()
    worker = Worker(config, examples)
    worker.labeller.budget.check_room([example.query.question for example in examples.examples])
    settings = {name: value for name, value in asdict(config).items() if name not in NOT_WORK}
    work = fingerprint([settings, examples.content, versions()])
    if out.exists():
        if read_metadata(out).get("work") != work:
            raise DataError(
                f"{out} holds labels made with other settings, data or versions; choose another output, or delete it "
                "to label anew"
            )
        logger.info("%s is complete already", out)
        return out
    own = out.with_suffix(f".{'' if shard is None else '{}-of-{}.'.format(*shard)}journal.jsonl")
    beside = _units_beside(out, own, work)
    with Journal(own, work) as journal:
        mine = examples.examples if shard is None else examples.of_shard(*shard)
        _label_missing(config, worker, [example for example in mine if example.key not in beside], journal)
        units = {**_units_beside(out, own, work), **journal.units}
        if all(example.key in units for example in examples.examples):
            metadata = {
                "work": work,
                "embedder": worker.labeller.embedder.name,
                "tokenizer": worker.labeller.tokenizer,
                "settings": settings,
                "versions": versions(),
                "models": merge_records(units[example.key]["models"] for example in examples.examples),
            }
            rows = [row for example in examples.examples for row in _rows(example, units[example.key])]
            write_labels(out, rows, metadata)
            log_run("label", config, out, out.stem, settings, means(rows, "configuration"))
            for path in _journal_paths(out):
                path.unlink(missing_ok=True)
    return out


def _rows(example: Example, unit: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    query = example.query
    names = {"data": example.data, "kind": example.kind, "query": query.id}
    names |= {"split": query.split, "group": example.group}
    for number, row in enumerate(unit["rows"]):
        yield {**names, "question": query.question, **row, **(unit["question"] if number == 0 else {})}


class Worker:
    """Labels questions, and keeps the pools that are made of a whole corpus."""

    def __init__(self, config: LabelConfig, examples: Examples) -> None:
        self._examples = examples
        self._pools: dict[int, Pool] = {}
        self._settings = EvaluateConfig(
            data=str(examples.folders[0].path),
            methods=tuple(config.configuration_list()),
            budget=config.budget,
            budget_for=config.budget_for,
            reader=config.reader,
            tokenizer=config.tokenizer,
            embedder=config.embedder,
        )
        self._queries = [example.query for example in examples.examples]
        self.labeller = Labeller(self._settings, self._queries)
        self._replaced: tuple[str, Labeller] = ("", self.labeller)

    def _labeller(self, adapter: str) -> Labeller:
        """Return the labeller with an adapter; the last one is kept, because sources of one kind are neighbours."""
        if adapter != self._replaced[0]:
            self._replaced = (adapter, Labeller(self._settings, self._queries, adapter) if adapter else self.labeller)
        return self._replaced[1]

    def prepare(self, sources: Sequence[int], *, quiet: bool) -> None:
        """Open the indexes of sources, and build those that are not there."""
        for source in sources:
            if self._examples.pool_name(source) == "corpus" and source not in self._pools:
                queries = self._examples.queries(source)
                self._pools[source] = self._examples.open_pool(source, queries, self.labeller.embedder, quiet=quiet)

    def label(self, examples: Sequence[Example]) -> Iterator[tuple[str, Unit]]:
        """Yield key and unit of each question, all of one source."""
        source = examples[0].source
        labeller = self._labeller(self._examples.sources[source].adapter)
        documents = self._examples.folders[source].documents
        # A question depends on what its candidates were embedded with, too.
        with recording() as before:
            self.prepare([source], quiet=True)
            pool = self._pools.get(source)
            if pool is None:
                queries = [example.query for example in examples]
                pool = self._examples.open_pool(source, queries, labeller.embedder)
        for example in examples:
            candidates = pool.candidates(example.query)
            with recording() as models:
                unit = {
                    "rows": labeller.rows(example.query, candidates, documents),
                    "question": labeller.question(example.query, candidates),
                }
            yield example.key, {**unit, "models": merge_records([before(), models()])}


def _label_missing(config: LabelConfig, worker: Worker, mine: Sequence[Example], journal: Journal) -> None:
    missing = [example for example in mine if example.key not in journal.units]
    if config.engine != "ray":
        worker.prepare(sorted({example.source for example in missing}), quiet=config.quiet)
    done = len(mine) - len(missing)
    with progress("label", quiet=config.quiet) as report:
        report(done, len(mine))

        def record(key: str, unit: Mapping[str, Any]) -> None:
            nonlocal done
            journal.add(key, unit)
            done += 1
            report(done, len(mine))
            if (error := next((row["error"] for row in unit["rows"] if row["error"]), None)) is not None:
                logger.warning("question %s failed: %s", key, error)

        if config.engine == "ray" and missing:
            with cluster_workers(config, partial(_labelling, config), most=len(missing)) as workers:
                for _, units in workers.map(_batches(missing, RAY_BATCH)):
                    for key, unit in units:
                        record(key, unit)
        else:
            for batch in _batches(missing, LOCAL_BATCH):
                for key, unit in worker.label(batch):
                    record(key, unit)


def _labelling(config: LabelConfig) -> Callable[[Sequence[Example]], list[tuple[str, Unit]]]:
    """Return what labels questions of one source in a worker of a Ray cluster, with models of its own."""
    worker = Worker(config, read_examples(config))
    return lambda examples: list(worker.label(examples))


def _batches(examples: Sequence[Example], size: int) -> Iterator[list[Example]]:
    """Yield neighbours of one source, at most `size` at a time."""
    batch: list[Example] = []
    for example in examples:
        if batch and (len(batch) == size or batch[0].source != example.source):
            yield batch
            batch = []
        batch.append(example)
    if batch:
        yield batch


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
