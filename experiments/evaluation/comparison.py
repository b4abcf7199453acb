"""Methods compared on sets of questions, at budgets: `corag evaluate`. A question is measured once."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from common.configuration import spelling
from common.storage import write_atomically
from corag.cli.console import progress, say, stderr
from corag.errors import DataError
from corag.memory import clear_caches
from corag.models.runtime import in_runtime, merge_records, recording
from corag.text.chunking import ChunkConfig
from corag.text.data import NO_SPLIT, DataFolder
from experiments.data.config import comma_separated
from experiments.data.pools import Pool, content_hash, open_pool, pool_name, sample_questions
from experiments.data.splits import default_split, document_groups, held_out, questions_of
from experiments.data.trec import RETRIEVER, Measures, Rankings, mean_of, ranking_of, write_runs
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.judge import VERDICT, with_claims
from experiments.evaluation.measure import Measuring, cold_and_warm
from experiments.evaluation.methods import Parts
from experiments.evaluation.metrics import LONG_ANSWER_WORDS, answer_words, evidence_figures
from experiments.protocol.held_out import look, sealed_questions, warn_of_sealed
from experiments.report.comparison import results_page
from experiments.report.measures import OF_ANSWERS, OF_TIME, Row, summaries
from experiments.report.results import Result
from experiments.run.journal import PAGE, RESULT, Journal, fingerprint, output_file, versions
from experiments.run.track import log_run

logger = logging.getLogger(__name__)

JOURNAL, MODELS = "journal.jsonl", "models"
"""Ending of the journal, and its key of the models that ran."""


def show(config: EvaluateConfig) -> None:
    """Compare methods, and show what came of it; a setting that no method takes is an `InputError`."""
    config.check_used()
    results = compare(config)
    if not config.quiet:
        results_page(results, curves=False).show()
    if config.out is not None:
        say(f"written to {config.out}", stderr())


@in_runtime
def compare(config: EvaluateConfig) -> Mapping[str, list[Result]]:
    """Run the comparison that a config describes, and return for each set of questions one result a budget.

    An interrupted one resumes; a set whose results are in `out` is not measured again.
    """
    runs = [SetRun(name, alone, several=config.several) for name, alone in config.by_set().items()]
    if config.out is None:
        return {run.name: run.results() for run in runs}
    out = Path(config.out)
    file = out / "comparison.html" if config.several else out.with_suffix(".html")
    output_file(str(file), PAGE)
    results = {run.name: run.results() for run in runs}
    page = results_page(results, curves=config.curves)
    write_atomically(file, page.html())
    write_atomically(file.with_suffix(".md"), page.markdown())
    for name, of_set in results.items():
        for result in of_set:
            label, pages = f"{name}-{result.budget}", {"report": page.html()}
            log_run(
                "evaluate", config, out, label, config.measured_settings(), result.methods, group=out.stem, pages=pages
            )
    return results


class SetRun:
    """The comparison on one set of questions; with `several`, `out` is a folder."""

    def __init__(self, name: str, config: EvaluateConfig, *, several: bool) -> None:
        self.name, self.config, self._several = name, config, several
        self.budgets = config.budgets or (config.budget,)
        self._files: dict[int, Path] = {}
        """Where results are written."""
        self._journal_file: Path | None = None
        if config.out is not None:
            out = Path(config.out)
            self._files = {budget: out / f"{name}-{budget}.json" if several else out for budget in self.budgets}
            self._journal_file = out / f"{name}.{JOURNAL}" if several else out.with_suffix(f".{JOURNAL}")
            if not several:
                output_file(config.out, RESULT)
        self._folder = DataFolder.open(config.data)
        is_named = bool(config.split)
        self.config = config = replace(config, split=config.split or default_split(self._folder))
        if config.look:
            queries = sealed_questions(self._folder, config.look)
        else:
            queries = questions_of(self._folder, config.split)
            total = len(self._folder.queries)
            if not is_named and len(queries) < total and all(one.split == NO_SPLIT for one in self._folder.queries):
                logger.warning(
                    "the %d questions name no split: %d of them are compared, as %r; the others are for training and "
                    "tests. Compare all with --split %s",
                    total, len(queries), config.split, NO_SPLIT,
                )  # fmt: skip
        if config.part == "held-out":
            chosen = held_out(self._folder, queries)
            queries = [query for query in queries if query.id in chosen]
        chosen_queries = sample_questions(queries[: config.limit], config.sample, config.seed)
        if not config.look:
            warn_of_sealed(self._folder, chosen_queries)
        self._queries = [query.after(config.history) for query in chosen_queries]
        if VERDICT in comma_separated(config.judge_figures):
            self._queries = with_claims(self._queries, f"{config.data}, {config.split},")
        self._parts = Parts(config, self._queries)
        self._measures = Measures(config.measures)
        self._methods = self._parts.methods(config.methods)
        data = content_hash(self._folder, config.index, config.run)
        self._content = [data, *self._parts.content(self._methods.selectors)]

    @cached_property
    def _pool(self) -> Pool:
        config = self.config
        return open_pool(
            self._folder, self._queries, self._parts.embedder, config, index=config.index,
            chunking=ChunkConfig(config.max_tokens), quiet=config.quiet,
        )  # fmt: skip

    # --- Results ---

    def results(self) -> list[Result]:
        """Return one result a budget, and write it; what is on disk is not measured again."""
        with suppress(DataError):  # a result that is missing or damaged is measured again
            finished = list(map(Result.read, self._files.values()))
            if finished and all(one.record.get("work") == self._work(one.budget) for one in finished):
                files = ", ".join(map(str, self._files.values()))
                logger.info("%s is complete already; delete it to measure again", files)
                return finished
        # What an earlier comparison of this process encoded is encoded again: the result lists the models that ran.
        clear_caches()
        # Before the journal: a run that is refused leaves no file.
        _ = self._parts.judge
        with recording() as embedded:
            _ = self._pool
        # A row depends on its question alone: with another limit or sample the same journal goes on.
        alike: dict[str, Any] = {"limit": None, "sample": None, "seed": 0, "measures": "", "curves": False}
        unlimited = replace(self.config, **alike, latency_questions=0).measured_settings()
        with Journal(self._journal_file, fingerprint([unlimited, *self._content])) as journal:
            if self.config.look and not journal.units:  # a run that is continued has been registered
                look(self._folder, self.config.look)
            self._measure_quality(journal, embedded())
            results = [self._result(journal, budget, self._times(journal, budget)) for budget in self.budgets]
            if not self._several:
                journal.remove()
        return results

    def _work(self, budget: int) -> str:
        return fingerprint([self.config.measured_settings(), budget, *self._content])

    def _measure_quality(self, journal: Journal, embedded: Sequence[Mapping[str, str]]) -> None:
        """Record a row for each budget, question and method, and the models that ran."""
        step = max(1, getattr(self._parts.prompted, "max_concurrent", 1))
        total = len(self.budgets) * len(self._queries)
        with progress(self.name, quiet=self.config.quiet) as report:
            for begin, budget in product(range(0, len(self._queries), step), self.budgets):
                report(begin * len(self.budgets), total)
                batch = self._queries[begin : begin + step]
                batch = [query for query in batch if f"{budget} {query.id}" not in journal.units]
                if not batch:
                    continue
                measuring = Measuring(
                    self._methods.selectors, self._parts.budget(budget), self._parts, self._folder.documents
                )
                with recording() as models:
                    rows_by_query = measuring.rows([(query, self._pool[query.id]) for query in batch])
                # Those of an earlier, interrupted run stay.
                before = journal.units.get(MODELS, [])
                if (known := merge_records([before, embedded, models()])) != before:
                    journal.add(MODELS, known)
                for query, rows in zip(batch, rows_by_query, strict=True):
                    journal.add(f"{budget} {query.id}", rows)
            report(total, total)

    def _times(self, journal: Journal, budget: int) -> Mapping[str, Mapping[str, Row]]:
        """Return the milliseconds of selections by question and method; a method that fails has none.

        Methods that share nothing are timed in turn on each question, once all else is measured.
        """
        if self.config.latency_questions == 0:
            return {}
        # Spread out: questions side by side may share a document.
        number = min(len(self._queries), self.config.latency_questions or len(self._queries))
        timed = [self._queries[int(row)] for row in np.linspace(0, len(self._queries) - 1, number)]
        if (key := f"{budget} times {fingerprint([query.id for query in timed])}") not in journal.units:
            selectors = self._parts.methods(self.config.methods, shared=False).selectors
            times: dict[str, dict[str, Row]] = {}
            with progress(f"{self.name}, times at {budget} tokens", quiet=self.config.quiet) as report:
                # The first selection of each method loads its models, and does not count.
                for done, query in enumerate([timed[0], *timed]):
                    rows = {
                        name: cold_and_warm(selector, query, self._pool[query.id], self._parts.budget(budget))
                        for name, selector in selectors.items()
                    }
                    times[query.id] = {name: row for name, row in rows.items() if row is not None}
                    report(done, len(timed))
            journal.add(key, times)
        units: Mapping[str, Mapping[str, Row]] = journal.units[key]
        return units

    def _result(self, journal: Journal, budget: int, times: Mapping[str, Mapping[str, Row]]) -> Result:
        queries, groups = self._queries, document_groups(self._folder, self._queries)
        units = [journal.units[f"{budget} {query.id}"] for query in queries]
        rows: dict[str, list[Row]] = {
            name: [
                {**unit[name], **times.get(query.id, {}).get(name, {}), "group": group}
                for unit, query, group in zip(units, queries, groups, strict=True)
            ]
            for name in self._methods.selectors
        }
        means = self._measure_rankings(rows, budget)
        unknown = dict.fromkeys((*(OF_ANSWERS if self._parts.reader is None else ()), *(() if times else OF_TIME)))
        config, estimated = self.config, any(row.get("estimated") for of_method in rows.values() for row in of_method)
        exact = self._parts.budget(budget).counts_exactly(self._parts.tokens) and not estimated
        record = {
            "data": config.data,
            "split": config.split,
            "budget_tokens": budget,
            "budget_for": config.budget_for,
            "tokenizer": self._parts.tokens.name,
            "exact": exact,
            "queries": len(self._queries),
            "queries_without_gold": sum(not query.evidence for query in self._queries),
            "pool": pool_name(config, self._queries, config.index),
            "main_measure": self._main_measure,
            "measures": self._measures.names,
            "retriever": means[RETRIEVER],
            "methods": [{"method": name, **summaries(rows[name]), **unknown, **means[name]} for name in rows],
            "left_out": dict(self._methods.left_out),
            "parts": {name: spelling(selector) for name, selector in self._methods.selectors.items()},
            **({} if self._parts.skip_reason is None else {"skip_reason": self._parts.skip_reason}),
            "config": replace(config, budget=budget, budgets=()).measured_settings(),
            "versions": versions(),
            "models": journal.units.get(MODELS, []),
            "seed": config.seed,
            "work": self._work(budget),
        }
        result = Result(record, rows)
        if self._files:
            result.write(self._files[budget])
        return result

    def _measure_rankings(self, rows: dict[str, list[Row]], budget: int) -> dict[str, dict[str, float | None]]:
        """Return the means of the measures by method, and the retriever's; rows get theirs, and runs are written."""
        offered = {query.id: [candidate.chunk for candidate in self._pool[query.id]] for query in self._queries}
        rankings: dict[str, Rankings] = {
            RETRIEVER: {query.id: ranking_of(offered[query.id], query.evidence) for query in self._queries}
        }
        # A question on which a method failed is not in that method's ranking.
        for name, of_method in rows.items():
            rankings[name] = {row["query"]: row["ranking"] for row in of_method if "ranking" in row}
        judgements = {query.id: query.relevance for query in self._queries if query.evidence}
        values = {name: self._measures.by_query(ranking, judgements) for name, ranking in rankings.items()}
        for name, of_method in rows.items():
            rows[name] = [{**row, **values[name].get(row["query"], {})} for row in of_method]
        if self._files:
            write_runs(self._files[budget].with_suffix(".runs"), rankings, judgements)
        means = {name: mean_of(list(of_one.values()), self._measures.names) for name, of_one in values.items()}
        figures = [evidence_figures(offered[query.id], query.evidence) for query in self._queries if query.evidence]
        means[RETRIEVER] |= mean_of(figures, ("evidence_recall", "full_evidence"))
        means[RETRIEVER]["candidates"] = fmean(map(len, offered.values()))
        return means

    @property
    def _main_measure(self) -> str:
        if self._parts.reader is None:
            return "evidence_recall"
        words = [answer_words(query.answers) for query in self._queries if query.answers]
        return "rougeL" if words and np.median(words) >= LONG_ANSWER_WORDS else "f1"
