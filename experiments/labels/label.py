"""`corag label`: how well each configuration serves each question, by the measures of `corag evaluate`.

Questions are the units of work: a journal keeps finished ones, and shards share them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from functools import cache
from glob import escape
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agent.configuration import Configuration
from corag.budget import Budget
from corag.cli.console import progress
from corag.errors import DataError
from corag.models.chat import Chat
from corag.models.runtime import PLACEMENT_SETTINGS, in_runtime, merge_records, recording
from corag.models.trained import load_adapter
from corag.naming import parse
from corag.readers.wrappers import CachedReader, SelfConsistentReader
from corag.registry import READERS
from corag.selectors.corag.features import question_vectors
from corag.selectors.problem import SelectionProblem
from corag.text.data import Query
from corag.types import Answer, Candidate, Reader
from experiments.data.pools import Pool, content_hash
from experiments.evaluation.config import NO_READER, EvaluateConfig
from experiments.evaluation.measure import Chosen, Measuring, Prompt
from experiments.evaluation.methods import with_shared_problem
from experiments.evaluation.metrics import LONG_ANSWER_WORDS, answer_words
from experiments.evaluation.parts import Parts
from experiments.labels.config import LabelConfig
from experiments.labels.examples import SourceQuestions, read_sources
from experiments.labels.table import FIGURES, read_metadata, write_labels
from experiments.run.journal import TABLE, Journal, fingerprint, output_file, read_units, versions
from experiments.run.track import UNMEASURED, log_run

logger = logging.getLogger(__name__)

NOT_WORK = ("out", "shard", "quiet", "concurrency", *UNMEASURED, *PLACEMENT_SETTINGS)
"""Settings on which no label depends, but for rounding."""
BATCH, AT_ONCE = 64, 16
"""Questions whose candidates are embedded at a time, and that are searched in lock-step."""
AHEAD = 4
"""Prompts in the queue for each that is being read, at most: enough for the next questions to be searched meanwhile."""

MEASURED = ("budget_tokens", *FIGURES)
"""Figures whose means are logged."""

Job = tuple[int, list[Query]]
"""The number of a source, and some of its questions."""
Readings = dict[Prompt, Future[Answer]]
"""What is asked, and the answers as they come."""
Unit = dict[str, Any]
"""What the journal keeps of a question: `rows`, one a configuration; `question`, its vectors; `models`, what ran."""


@in_runtime
def label(config: LabelConfig) -> Path:
    """Write the label table that a config describes; return its path. A table of other settings is a `DataError`.

    With a shard, only its journal until all shards are done.
    """
    out, sources = output_file(config.out, TABLE), read_sources(config)
    for source in sources:
        source.check_pool()
    worker = Worker(config, sources)
    questions = [query.question for source in sources for query in source.queries]
    worker.budget.for_context(min(questions, key=len, default=""))
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
        return out
    worker.selectors("")  # refuses wrong settings before anything is written
    own = out.with_suffix(f".{config.shard.replace('/', '-of-')}{'.' * bool(config.shard)}journal.jsonl")
    beside = _units_beside(out, own, work)
    with Journal(own, work) as journal:
        _label_missing(config, sources, worker, journal, beside.keys())
        done = {**_units_beside(out, own, work), **journal.units}
        if any(source.key(query) not in done for source in sources for query in source.queries):
            return out
        units = [
            (source, row, done[source.key(query)]) for source in sources for row, query in enumerate(source.queries)
        ]
        metadata = {
            "work": work,
            "embedder": worker.parts.embedder.name,
            "tokenizer": worker.parts.tokens.name,
            "settings": settings,
            "versions": versions(),
            "models": merge_records(unit["models"] for _, _, unit in units),
        }
        rows = [row for unit in units for row in _table_rows(*unit)]
        table = write_labels(out, rows, metadata)
        means = table.group_by("configuration", use_threads=False).aggregate([(name, "mean") for name in MEASURED])
        figures = {row["configuration"]: {name: row[f"{name}_mean"] for name in MEASURED} for row in means.to_pylist()}
        log_run("label", config, out, out.stem, settings, figures)
        for path in _journals(out):
            path.unlink(missing_ok=True)
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
        self._sources, self._configurations = sources, config.configuration_list()
        settings = EvaluateConfig(
            data=str(sources[0].folder.path),
            methods=tuple(self._configurations),
            budget=config.budget,
            budget_for=config.budget_for,
            reader=_with_concurrency(config),
            tokenizer=config.tokenizer,
            embedder=config.embedder,
        )
        self.parts = Parts(settings, [query for source in sources for query in source.queries])
        self.budget = Budget(config.budget, self.parts.prompted, config.budget_for)
        self._pools: dict[int, Pool] = {}
        self._problems: dict[Any, SelectionProblem] = {}
        self.selectors = cache(self._selectors_with)

    def _selectors_with(self, adapter: str) -> dict[str, Any]:
        """Return the selectors by configuration, with an adapter in place of the shipped one of the same name."""
        spellings = {name: name for name in self._configurations}
        if adapter:
            shipped = load_adapter(adapter).config.name
            for name in self._configurations:
                if (written := parse(name)).settings.get("reranker") == shipped:
                    spellings[name] = written.with_settings(reranker=Configuration(shipped, {"adapter": adapter}))
        selectors = self.parts.methods(tuple(spellings.values())).selectors
        return {
            name: with_shared_problem(selectors[spelling], name, self._problems) for name, spelling in spellings.items()
        }

    def prepare(self, number: int, *, quiet: bool) -> None:
        """Open the index of a source, and build one that is not there."""
        source = self._sources[number]
        if (source.settings.pool == "corpus" or source.settings.run is not None) and number not in self._pools:
            self._pools[number] = source.open_pool(source.queries, self.parts.embedder, quiet=quiet)

    def label(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Unit]]:
        """Yield key and unit of each question; while the reader reads, the next questions are searched."""
        waiting: deque[_Started] = deque()
        reader = None if self.parts.reader is None else self.parts.prompted
        concurrency = getattr(reader, "max_concurrent", 1)
        with nullcontext() if reader is None else Queue(reader, concurrency) as queue:
            for number, queries in jobs:
                source = self._sources[number]
                # A question depends on what its candidates were embedded with, too.
                with recording() as before:
                    self.prepare(number, quiet=True)
                    pool = self._pools.get(number) or source.open_pool(queries, self.parts.embedder)
                for start in range(0, len(queries), AT_ONCE):
                    questions = [(query, pool.candidates(query)) for query in queries[start : start + AT_ONCE]]
                    waiting.extend(self._started(source, questions, queue, before()))
                    while waiting and (
                        all(answer.done() for answer in waiting[0].readings.values())
                        or sum(len(one.readings) for one in waiting) > AHEAD * concurrency
                    ):
                        yield self._finished(waiting.popleft())
            while waiting:
                yield self._finished(waiting.popleft())

    def _started(
        self,
        source: SourceQuestions,
        questions: Sequence[tuple[Query, Sequence[Candidate]]],
        queue: Queue | None,
        before: Sequence[Mapping[str, str]],
    ) -> list[_Started]:
        """Let every configuration choose for some questions, and queue what is to be read."""
        self._problems.clear()
        with recording() as models:
            selectors, documents = self.selectors(source.settings.adapter), source.folder.documents
            measuring = Measuring(selectors, self.budget, self.parts, documents=documents)
            chosen = measuring.choose(questions)
            # All are asked before anything else is computed.
            readings = [
                {} if queue is None or not query.answers else queue.ask(measuring.prompts(one))
                for (query, _), one in zip(questions, chosen, strict=True)
            ]
            vectors = [self._vectors(*question) for question in questions]
        ran, keys = merge_records([before, models()]), [source.key(query) for query, _ in questions]
        return [
            _Started(key, measuring, one, of_one, of_question, ran)
            for key, one, of_one, of_question in zip(keys, chosen, readings, vectors, strict=True)
        ]

    def _finished(self, started: _Started) -> tuple[str, Unit]:
        """Return key and unit of a question, with a row for each configuration, once its prompts are read."""
        answers = {prompt: answer.result() for prompt, answer in started.readings.items()}
        [by_name] = started.measuring.measured([started.chosen], answers)
        rows = [
            {
                "configuration": name,
                "budget_tokens": self.budget.tokens,
                **{measured: float(row[measured]) for measured in FIGURES if row.get(measured) is not None},
                "error": row.get("error"),
            }
            for name, row in by_name.items()
        ]
        return started.key, {"rows": rows, "question": started.vectors, "models": started.models}

    def _vectors(self, query: Query, candidates: Sequence[Candidate]) -> dict[str, Any]:
        """Return the vectors that an agent's features are made of; half precision is the table's."""
        budget = self.budget.for_context(query.question)
        problem = SelectionProblem(query.question, candidates, self.parts.tokens, budget).prefiltered()
        [vectors] = question_vectors([problem], self.parts.embedder)
        return {
            "similarities": vectors.similarities.astype(np.float32).tolist(),
            "query_vector": vectors.query.astype(np.float16).tolist(),
            "candidates_vector": vectors.candidates.astype(np.float16).tolist(),
            "long_form": answer_words(query.answers) >= LONG_ANSWER_WORDS,
        }


class _Started(NamedTuple):
    """A question whose prompts are being read."""

    key: str
    measuring: Measuring
    chosen: Chosen
    readings: Readings
    vectors: dict[str, Any]
    models: list[dict[str, str]]


class Queue(AbstractContextManager["Queue"]):
    """Asks a reader, across questions: a server for at most `concurrency` answers at a time, any other reader at once.

    With the block its threads end; a request that is under way then is given up.
    """

    def __init__(self, reader: Reader, concurrency: int) -> None:
        self._reader = reader
        is_served = isinstance(reader.readers[0] if isinstance(reader, SelfConsistentReader) else reader, Chat)
        # Unlike those of `concurrent.futures`, these threads do not keep an interrupted process waiting for a reply.
        self._pool = ThreadPool(concurrency) if is_served else None

    def ask(self, prompts: Sequence[Prompt]) -> Readings:
        """Ask for answers, in the order of the calls; what the reader raises is raised where its answer is taken."""
        readings: Readings = {prompt: Future() for prompt in prompts}
        if self._pool is not None:
            for prompt, future in readings.items():
                self._pool.apply_async(self._reader.answer, prompt, {}, future.set_result, future.set_exception)
        elif readings:
            # Asks for all at once those that can.
            answers = CachedReader(self._reader, cache_mb=0).answer_many(*map(list, zip(*readings, strict=True)))
            for future, answer in zip(readings.values(), answers, strict=True):
                future.set_result(answer)
        return readings

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.terminate()


def _with_concurrency(config: LabelConfig) -> str:
    """Return the reader, which asks its server for as many answers at a time as the config says."""
    if config.reader == NO_READER:
        return config.reader
    reader = parse(config.reader)
    takes = "max_concurrent" in READERS.settings(config.reader) and "max_concurrent" not in reader.settings
    return reader.with_settings(max_concurrent=config.concurrency) if takes else config.reader


def _journals(out: Path) -> list[Path]:
    """Return the journals of a table that exist: that of a whole run, and those of shards."""
    stem = escape(out.stem)
    return [path for name in ("", "[0-9]*-of-[0-9]*.") for path in out.parent.glob(f"{stem}.{name}journal.jsonl")]


def _units_beside(out: Path, own: Path, work: str) -> dict[str, Any]:
    """Return the units in the journals of other processes; those of other work are refused."""
    units: dict[str, Any] = {}
    for path in _journals(out):
        if path != own:
            with suppress(FileNotFoundError):  # whoever ended first wrote the table
                units |= read_units(path, work)
    return units


def _label_missing(
    config: LabelConfig, sources: Sequence[SourceQuestions], worker: Worker, journal: Journal, beside: Collection[str]
) -> None:
    """Label the questions of the shard that neither this journal nor those beside it have."""
    shard, count = config.number_of_shard
    jobs: list[Job] = []
    for number, source in enumerate(sources):
        # Of each source a run of neighbours, which often share passages.
        start, end = (-(-len(source.queries) * part // count) for part in (shard - 1, shard))
        mine = source.queries[start:end]
        missing = [query for query in mine if source.key(query) not in {*journal.units, *beside}]
        jobs += [(number, missing[start : start + BATCH]) for start in range(0, len(missing), BATCH)]
        if missing:
            worker.prepare(number, quiet=config.quiet)
    total = len(journal.units) + sum(len(queries) for _, queries in jobs)
    with progress("label", quiet=config.quiet) as report:
        report(len(journal.units), total)
        for key, unit in worker.label(jobs):
            journal.add(key, unit)
            report(len(journal.units), total)
            if (error := next((row["error"] for row in unit["rows"] if row["error"]), None)) is not None:
                logger.warning("question %s failed: %s", key, error)
