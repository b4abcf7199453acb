"""`corag label`: how well each configuration serves each question, by the measures of `corag evaluate`.

Questions are the units of work: a journal keeps finished ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import chain, starmap
from pathlib import Path
from typing import Any

import numpy as np

from corag.budget import Budget
from corag.cli.console import progress, say
from corag.errors import DataError
from corag.models.runtime import PLACEMENT_SETTINGS, in_runtime, merge_records, recording
from corag.selectors.corag.features import question_vectors
from corag.selectors.problem import SelectionProblem
from corag.text.data import Query
from corag.types import Candidate, Selector
from experiments.data.pools import Pool, content_hash
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.measure import Measuring, Rows
from experiments.evaluation.methods import with_shared_problem
from experiments.evaluation.parts import Parts
from experiments.labels.config import LabelConfig
from experiments.labels.examples import SourceQuestions, read_sources
from experiments.labels.table import FIGURES, read_metadata, write_labels
from experiments.run.journal import TABLE, Journal, fingerprint, output_file, versions
from experiments.run.track import UNMEASURED, log_run

logger = logging.getLogger(__name__)

NOT_WORK = ("out", "shard", "quiet", *UNMEASURED, *PLACEMENT_SETTINGS)
"""Settings on which no label depends, but for rounding."""
BATCH, AT_ONCE = 64, 16
"""Questions whose candidates are embedded at a time, and at most that are searched in lock-step and read together."""

TRAIN = "labels in {0}; train an agent with: corag train --labels {0} --out runs/agent"
MEASURED = ("budget_tokens", *FIGURES)
"""Figures whose means are logged."""

Unit = dict[str, Any]
"""What the journal keeps of a question: `rows`, one a configuration; `question`, its vectors; `models`, what ran."""


@in_runtime
def label(config: LabelConfig) -> Path:
    """Write the label table that a config describes; return its path. A table of other settings is a `DataError`."""
    out, (shard, count) = output_file(config.out, TABLE), config.number_of_shard
    if config.shard:
        out = out.with_suffix(f".{shard}-of-{count}.parquet")
    sources = [part for source in read_sources(config) if (part := source.shard(shard, count)).queries]
    for source in sources:
        source.check_pool()
    if not sources:
        raise DataError(f"shard {config.shard} has no question; give fewer shards")
    worker = Worker(config, sources)
    questions = [query.question for source in sources for query in source.queries]
    worker.budget.for_context(min(questions, key=len))
    settings = {name: value for name, value in asdict(config).items() if name not in NOT_WORK}
    content = [content_hash(source.folder, source.queries, config.index, source.settings.run) for source in sources]
    work = fingerprint([settings, fingerprint(content), versions()])
    if out.exists():
        if read_metadata(out).get("work") != work:
            raise DataError(
                f"{out} holds labels made with other settings, data or versions; choose another output, or delete it "
                "to label anew"
            )
        logger.info("%s is complete already", out)
        say(TRAIN.format(out))
        return out
    _ = worker.selectors  # refuses wrong settings before anything is written
    with Journal(out.with_suffix(".journal.jsonl"), work) as journal:
        _label_missing(config, sources, worker, journal)
        units = [
            (source, row, journal.units[source.key(query)])
            for source in sources
            for row, query in enumerate(source.queries)
        ]
        metadata = {
            "work": work,
            "embedder": worker.parts.embedder.name,
            "tokenizer": worker.parts.tokens.name,
            # Of a language model its name, temperature, seed and prompt.
            "reader": getattr(worker.parts.prompted, "identity", None),
            "settings": settings,
            "versions": versions(),
            "models": merge_records(unit["models"] for _, _, unit in units),
        }
        rows = [row for unit in units for row in _table_rows(*unit)]
        table = write_labels(out, rows, metadata)
        means = table.group_by("configuration", use_threads=False).aggregate([(name, "mean") for name in MEASURED])
        figures = {row["configuration"]: {name: row[f"{name}_mean"] for name in MEASURED} for row in means.to_pylist()}
        log_run("label", config, out, out.stem, settings, figures)
        journal.remove()
    say(TRAIN.format(out))
    return out


def _table_rows(source: SourceQuestions, number: int, unit: Unit) -> Iterator[dict[str, Any]]:
    """Yield the rows of a question of a source; the first has its vectors."""
    query = source.queries[number]
    names = {"data": source.settings.data, "kind": source.settings.kind, "group": source.groups[number]}
    names |= {"query": query.id, "split": query.split, "question": query.question}
    vectors = unit["question"]
    for row in unit["rows"]:
        yield {**names, **row, **vectors}
        vectors = {}


class Worker:
    """Labels questions with models of its own, and keeps the pools that are made of a whole corpus.

    Memory is shared: a passage is encoded once for all rerankers, an order is valued once by each, and a context is
    read once.
    """

    def __init__(self, config: LabelConfig, sources: Sequence[SourceQuestions]) -> None:
        self._sources = sources
        settings = EvaluateConfig(
            data=str(sources[0].folder.path),
            methods=tuple(config.configuration_list()),
            budget=config.budget,
            budget_for=config.budget_for,
            reader=config.reader,
            tokenizer=config.tokenizer,
            embedder=config.embedder,
        )
        self.parts = Parts(settings, [query for source in sources for query in source.queries])
        self.budget = Budget(config.budget, self.parts.prompted, config.budget_for)
        self._pools: dict[int, Pool] = {}
        self._problems: dict[Any, SelectionProblem] = {}
        # Of a server with few prompts at a time few questions, so that little is asked again after an interruption.
        self._at_once = min(AT_ONCE, int(getattr(self.parts.prompted, "max_concurrent", AT_ONCE)))

    @cached_property
    def selectors(self) -> dict[str, Selector]:
        """The selectors by configuration; those of one unit share the values of orders."""
        made = self.parts.methods(self.parts.config.methods).selectors
        return {name: with_shared_problem(selector, name, self._problems) for name, selector in made.items()}

    def prepare(self, number: int, *, quiet: bool) -> None:
        """Open the index of a source, and build one that is not there."""
        source = self._sources[number]
        if (source.settings.pool == "corpus" or source.settings.run is not None) and number not in self._pools:
            self._pools[number] = source.open_pool(source.queries, self.parts.embedder, quiet=quiet)

    def label(self, number: int, queries: Sequence[Query]) -> Iterator[tuple[str, Unit]]:
        """Yield key and unit of each question of a source, a few questions at a time."""
        source = self._sources[number]
        # A question depends on what its candidates were embedded with, too.
        with recording() as before:
            self.prepare(number, quiet=True)
            pool = self._pools.get(number) or source.open_pool(queries, self.parts.embedder)
        documents = source.folder.documents
        measuring = Measuring(self.selectors, self.budget, self.parts, documents, skip_unanswered=True)
        for start in range(0, len(queries), self._at_once):
            questions = [(query, pool.candidates(query)) for query in queries[start : start + self._at_once]]
            self._problems.clear()
            with recording() as models:
                rows_by_query = measuring.rows(questions)
                vectors = [self._vectors(*question) for question in questions]
            ran = merge_records([before(), models()])
            for (query, _), rows, of in zip(questions, rows_by_query, vectors, strict=True):
                yield source.key(query), {"rows": self._table_rows(rows), "question": of, "models": ran}

    def _table_rows(self, rows: Rows) -> list[dict[str, Any]]:
        return [
            {
                "configuration": name,
                "budget_tokens": self.budget.tokens,
                **{measured: float(row[measured]) for measured in FIGURES if row.get(measured) is not None},
                "error": row.get("error"),
            }
            for name, row in rows.items()
        ]

    def _vectors(self, query: Query, candidates: Sequence[Candidate]) -> dict[str, Any]:
        """Return the vectors that an agent's features are made of; half precision is the table's."""
        budget = self.budget.for_context(query.question)
        problem = SelectionProblem(query.question, candidates, self.parts.tokens, budget).prefiltered()
        [vectors] = question_vectors([problem], self.parts.embedder)
        return {
            "similarities": vectors.similarities.astype(np.float32).tolist(),
            "query_vector": vectors.query.astype(np.float16).tolist(),
            "candidates_vector": vectors.candidates.astype(np.float16).tolist(),
        }


def _label_missing(config: LabelConfig, sources: Sequence[SourceQuestions], worker: Worker, journal: Journal) -> None:
    """Label the questions that a journal lacks."""
    jobs: list[tuple[int, Sequence[Query]]] = []
    for number, source in enumerate(sources):
        missing = [query for query in source.queries if source.key(query) not in journal.units]
        jobs += [(number, missing[start : start + BATCH]) for start in range(0, len(missing), BATCH)]
        if missing:
            worker.prepare(number, quiet=config.quiet)
    total = sum(len(source.queries) for source in sources)
    with progress("label", quiet=config.quiet) as report:
        report(len(journal.units), total)
        for key, unit in chain.from_iterable(starmap(worker.label, jobs)):
            journal.add(key, unit)
            report(len(journal.units), total)
            if (error := next((row["error"] for row in unit["rows"] if row["error"]), None)) is not None:
                logger.warning("question %s failed: %s", key, error)
