"""Methods compared on one set of questions, at budgets, with rerankers; a question is measured once."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from corag.budget import Budget
from corag.cli.console import progress
from corag.models.cached import CachedEmbedder
from corag.models.cluster import CLUSTER, cluster_workers
from corag.models.ran import ran_in_all, recording
from corag.models.runtime import WHERE
from corag.naming import spelling, without_secrets
from corag.text.chunking import ChunkConfig
from corag.text.data import DataFolder, Query
from corag.text.documents import SEPARATOR
from corag.text.visible import to_json
from experiments.data.pools import Pool, content_hash, drawn, open_pool
from experiments.data.splits import HELD_OUT, held_out, questions_of
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.judge import Judge
from experiments.evaluation.measure import Measuring, select
from experiments.evaluation.metrics import evidence_places
from experiments.evaluation.parts import Parts, checkpoint_hash, judge_of
from experiments.evaluation.rankings import (
    QRELS,
    RETRIEVER,
    Measures,
    mean_of,
    rankings_of,
    retriever_figures,
    write_runs,
)
from experiments.evaluation.verify import with_claims
from experiments.report.measures import MEASURES, OF_ANSWERS, Row, summaries
from experiments.report.results import Result, rows_file
from experiments.run.journal import (
    RESULT,
    Journal,
    fingerprint,
    finished_record,
    output_file,
    versions,
    write_atomically,
)
from experiments.run.track import UNMEASURED

logger = logging.getLogger(__name__)

MODELS = "models"
"""Key in the journal of the models that ran."""
OUTPUT_SETTINGS = ("out", "runs", "quiet", "only", "baselines", *CLUSTER, *UNMEASURED, *WHERE)
"""Settings that no row depends on, but for rounding."""
COUNTS = {"queries_with_sentences": "sentence_recall", "queries_with_answer": "answer_in_context"}
"""Questions that are counted, by a measure that only they have."""
RAY_BATCH = 8
"""Questions given to a worker at a time."""

Job: TypeAlias = tuple[int, list[str]]
"""A budget and the ids of questions."""
Measurements: TypeAlias = tuple[list[dict[str, dict[str, Any]]], list[dict[str, str]]]
Worker: TypeAlias = "Callable[[Sequence[Job]], Iterable[tuple[int, Measurements]]]"


class SetRun:
    """The comparison on one set of questions; with `several`, `out` is a folder."""

    def __init__(self, name: str, config: EvaluateConfig, *, several: bool) -> None:
        self.name, self.config, self._several = name, config, several
        self.budgets = config.budgets or (config.budget,)
        self._files: dict[int, Path] = {}
        if config.out is not None:
            out = Path(config.out)
            files = (
                out / f"{name}-{budget}.json" if several else output_file(config.out, RESULT) for budget in self.budgets
            )
            self._files = dict(zip(self.budgets, files, strict=True))
        self._runs = {budget: file.with_suffix(".runs") for budget, file in self._files.items()}
        if config.runs is not None:
            root = Path(config.runs)
            self._runs = {one: root / f"{name}-{one}" if several else root for one in self.budgets}
        self._folder = DataFolder.open(config.data)
        queries = questions_of(self._folder, config.split)
        if config.part == "held-out":
            chosen = held_out(self._folder, queries, HELD_OUT)
            queries = [query for query in queries if query.id in chosen]
        self._queries = drawn(queries[: config.limit], config.sample, config.seed)
        if config.task == "verify":
            self._queries = with_claims(self._queries, f"{config.data}, {config.split},")
        self._parts = parts = Parts(config, self._beside, queries=self._queries)
        self._tokens, self._own_reader, self._reader = parts.tokens, parts.prompted, parts.reader
        for budget in self.budgets:
            self._budget(budget).check_room([query.question for query in self._queries])
        self._measures = Measures(config.measures)
        self._shared = config.latency_questions is not None
        self._methods = parts.methods(shared=self._shared)
        self._content = [
            content_hash(self._folder, self._folder.queries, config.index, config.run),
            checkpoint_hash(config.agent),
            self._tokens.name,
            versions(),
            parts.prompt_text,
        ]

    def _beside(self, suffix: str) -> Path | None:
        """Return the place of a file beside the results; None where nothing is written."""
        if self.config.out is None:
            return None
        out = Path(self.config.out)
        return out / f"{self.name}.{suffix}" if self._several else out.with_suffix(f".{suffix}")

    @property
    def _embedder(self) -> CachedEmbedder:
        return self._parts.embedder

    @cached_property
    def _pool(self) -> Pool:
        config = self.config
        return open_pool(
            self._folder,
            self._queries,
            self._embedder,
            config,
            index=config.index,
            chunking=ChunkConfig(config.max_tokens),
            quiet=config.quiet,
        )

    def _budget(self, tokens: int) -> Budget:
        return Budget(tokens, self._own_reader, self.config.budget_for)

    # --- Results ---

    def results(self) -> list[Result]:
        """Return one result a budget, and write it; what stands on disk is not measured again."""
        if (found := self._finished()) is not None:
            logger.info("%s is complete already; delete it to measure again", ", ".join(map(str, self._files.values())))
            return found
        judge = judge_of(self.config)
        # Before the journal: a run that is refused leaves no file.
        with recording() as embedded:
            _ = self._pool
        # A row depends on its question alone: with another limit or sample the same journal goes on.
        unlimited = settings_of(replace(self.config, limit=None, sample=None, seed=0, measures=""))
        with Journal(self._beside("journal.jsonl"), fingerprint([unlimited, *self._content])) as journal:
            self._measure_quality(journal, judge, embedded())
            latencies = {budget: self._latencies(journal, budget) for budget in self.budgets}
            results = [self._result(journal, budget, latencies[budget]) for budget in self.budgets]
            if not self._several:
                journal.remove()
        return results

    def _finished(self) -> list[Result] | None:
        """Return the results of this very work where they all stand on disk."""
        if self.config.runs is not None and not all((folder / QRELS).is_file() for folder in self._runs.values()):
            return None
        for budget, file in self._files.items():
            if finished_record(file, self._work(budget)) is None:
                return None
        return [Result.read(file) for file in self._files.values()] or None

    def _work(self, budget: int) -> str:
        return fingerprint([settings_of(self.config), budget, *self._content])

    def _measure_quality(self, journal: Journal, judge: Judge | None, embedded: Sequence[Mapping[str, str]]) -> None:
        """Record a row for each budget, question and method, and the models that ran."""
        step = RAY_BATCH if self.config.engine == "ray" else max(1, getattr(self._own_reader, "max_concurrent", 1))
        queries = [self._queries[begin : begin + step] for begin in range(0, len(self._queries), step)]
        jobs = [(budget, [query.id for query in some]) for some in queries for budget in self.budgets]
        missing = [(budget, [one for one in ids if f"{budget} {one}" not in journal.units]) for budget, ids in jobs]
        jobs = [(budget, ids) for budget, ids in missing if ids]
        total = len(self.budgets) * len(self._queries)
        done = total - sum(len(ids) for _, ids in jobs)
        with progress(self.name, quiet=self.config.quiet) as report, self._measuring(judge, len(jobs)) as measured:
            report(done, total)
            for number, (found, models) in measured(jobs):
                budget, ids = jobs[number]
                # Those of an earlier, interrupted run stay.
                before = journal.units.get(MODELS, [])
                if (ran := ran_in_all([before, embedded, models])) != before:
                    journal.add(MODELS, ran)
                for query_id, rows in zip(ids, found, strict=True):
                    journal.add(f"{budget} {query_id}", rows)
                done += len(ids)
                report(done, total)

    @contextmanager
    def _measuring(self, judge: Judge | None, num_jobs: int) -> Iterator[Worker]:
        """Yield what measures jobs, here or on a cluster, and numbers what it found."""
        if self.config.engine == "local" or not num_jobs:
            yield lambda jobs: enumerate(self.measured(job, judge) for job in jobs)
            return
        with cluster_workers(self.config, partial(_measuring_alone, self.name, self.config), most=num_jobs) as workers:
            yield workers.map

    def measured(self, job: Job, judge: Judge | None) -> Measurements:
        """Return for each question of a job the rows of all methods, and the models that ran."""
        budget, ids = job
        with recording() as models:
            rows = Measuring(
                self._methods.selectors,
                self._budget(budget),
                self._tokens,
                self._embedder,
                reader=self._reader,
                judge=judge,
                verifier=self._parts.verifier,
                timed=not self._shared,
                documents=self._folder.documents,
            ).rows([(query, self._pool.candidates(query)) for query in map(self._by_id.__getitem__, ids)])
        return rows, models()

    @cached_property
    def _by_id(self) -> dict[str, Query]:
        return {query.id: query for query in self._queries}

    def _latencies(self, journal: Journal, budget: int) -> Mapping[str, Sequence[float]]:
        """Return the milliseconds of selections that are timed by themselves, by method.

        Models are loaded, and the vectors of the candidates are known, as they are from the index; each method sees
        the question's chunks for the first time.
        """
        if not self.config.latency_questions:
            return {}
        # Spread out: questions side by side may share a document, whose chunks are then no longer new.
        wanted = min(self.config.latency_questions + 1, len(self._queries))
        timed = [self._queries[int(place)] for place in np.linspace(0, len(self._queries) - 1, wanted)]
        if (key := f"{budget} latency {fingerprint([query.id for query in timed])}") not in journal.units:
            selectors = self._parts.methods(shared=False).selectors
            times: dict[str, list[float]] = {name: [] for name in selectors}
            with progress(f"{self.name}, latency at {budget} tokens", quiet=self.config.quiet) as report:
                for number, query in enumerate(timed, start=1):
                    candidates = self._pool.candidates(query)
                    self._embedder.embed([query.question, *(candidate.chunk.text for candidate in candidates)])
                    for name, selector in selectors.items():
                        found, latency_ms = select(selector, query, candidates, self._budget(budget))
                        # The first question warms up, unless it is the only one.
                        if not isinstance(found, Exception) and (number > 1 or len(timed) == 1):
                            times[name].append(latency_ms)
                    report(number, len(timed))
            journal.add(key, times)
        latencies: Mapping[str, Sequence[float]] = journal.units[key]
        return latencies

    def _result(self, journal: Journal, budget: int, latencies: Mapping[str, Sequence[float]]) -> Result:
        units = [journal.units[f"{budget} {query.id}"] for query in self._queries]
        rows = {name: [unit[name] for unit in units] for name in self._methods.selectors}
        means = self._measure_rankings(rows, budget)
        apart = {name: _latencies_of(latencies.get(name, ())) if self._shared else {} for name in rows}
        unread = dict.fromkeys(OF_ANSWERS if self._reader is None else ())
        config = self.config
        record = {
            "data": config.data,
            "split": config.split,
            "budget_tokens": budget,
            "budget_for": config.budget_for,
            "tokenizer": self._tokens.name,
            "exact": self._budget(budget).counts_exactly(self._tokens) and not _estimated(rows),
            "queries": len(self._queries),
            "queries_without_gold": sum(not query.gold for query in self._queries),
            **{count: _have(units, name) for count, name in COUNTS.items()},
            "pool": self._pool.name,
            "measures": self._measures.names,
            "retriever": means[RETRIEVER],
            "methods": [
                {"method": name, **summaries(rows[name]), **unread, **apart[name], **means[name]} for name in rows
            ],
            "left_out": dict(self._methods.left_out),
            "parts": {name: spelling(selector) for name, selector in self._methods.selectors.items()},
            **({} if self._parts.unread is None else {"unread": self._parts.unread}),
            **({"ceiling": self._ceiling(budget)} if self._several else {}),
            "config": settings_of(replace(config, budget=budget, budgets=())),
            "versions": versions(),
            "models": journal.units.get(MODELS, []),
            "seed": config.seed,
            "work": self._work(budget),
        }
        if budget in self._files:
            lines = [to_json({"method": name, **row}) for name in rows for row in rows[name]]
            write_atomically(rows_file(self._files[budget]), "\n".join(lines) + "\n")
            write_atomically(self._files[budget], to_json(record, indent=2) + "\n")
        return Result(record, rows)

    def _measure_rankings(self, rows: dict[str, list[Row]], budget: int) -> dict[str, dict[str, float | None]]:
        """Return the means of the measures by method, and the retriever's; rows get theirs, and runs are written."""
        rankings = rankings_of(self._queries, self._pool.by_query, rows)
        judgements = {query.id: query.relevance for query in self._queries if query.gold}
        values = {name: self._measures.by_query(ranking, judgements) for name, ranking in rankings.items()}
        for name, of_method in rows.items():
            rows[name] = [{**row, **values[name].get(row["query"], {})} for row in of_method]
        if budget in self._runs:
            write_runs(self._runs[budget], rankings, judgements)
        means = {name: mean_of(list(found.values()), self._measures.names) for name, found in values.items()}
        means[RETRIEVER] |= retriever_figures(self._queries, self._pool.by_query)
        return means

    def _ceiling(self, budget: int) -> float | None:
        """Return the share of the questions with gold whose evidence is among the candidates and fits the budget.

        Of several chunks that hold the same evidence the cheapest counts.
        """
        fits = []
        for query in self._queries:
            chunks = [candidate.chunk for candidate in self._pool.candidates(query)]
            cheapest = np.argsort(self._tokens.count([chunk.text for chunk in chunks]), kind="stable").tolist()
            places = evidence_places([chunks[place] for place in cheapest], query.gold)
            text = SEPARATOR.join(chunks[place].text for place in sorted(cheapest[place] for place in places or ()))
            prompt = self._budget(budget).prompt_tokens(query.question, text)
            in_context = self.config.budget_for == "context" or prompt is None
            cost = int(self._tokens.count([text])[0]) if in_context or prompt is None else prompt
            fits += [places is not None and cost <= budget] if query.gold else []
        return float(np.mean(fits)) if fits else None


def _measuring_alone(name: str, config: EvaluateConfig) -> Callable[[Job], Measurements]:
    """Return what measures jobs in a worker; it writes nothing."""
    run = SetRun(name, replace(config, out=None, runs=None), several=False)
    return partial(run.measured, judge=judge_of(config))


def _estimated(rows: Mapping[str, Sequence[Row]]) -> bool:
    """Return whether the tokens of some selection were estimated."""
    return any(row.get("estimated") for of_method in rows.values() for row in of_method)


def settings_of(config: EvaluateConfig) -> dict[str, Any]:
    """Return the settings that rows depend on, as JSON gives them back."""
    found: dict[str, Any] = json.loads(json.dumps(without_secrets(asdict(config))))
    return {name: value for name, value in found.items() if name not in OUTPUT_SETTINGS}


def _have(questions: Sequence[Mapping[str, Row]], name: str) -> int:
    """Return how many questions have a measure, given the row of each method."""
    return sum(any(name in row for row in rows.values()) for rows in questions)


def _latencies_of(times: Sequence[float]) -> dict[str, float | None]:
    """Return the measures of selections that were timed apart; None without any."""
    rows = [{"latency_ms": milliseconds} for milliseconds in times]
    names = ("latency_ms_median", "latency_ms_p95")
    return {name: MEASURES[name].summary(rows) if rows else None for name in names}
