"""All methods on several sets of questions at several budgets.

Vectors of chunks and questions are shared by all methods while quality is measured, since it does not depend on who
computed them. Latency is measured by itself, on a few questions: every method then has rerankers and summarizers of
its own, which see the question's chunks for the first time. Models are loaded, and the vectors of the candidates are
known, as they are from the index.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import corag
from corag.cli.console import progress, say
from corag.errors import CoragError, DataError, InputError
from corag.models.cached import CachedEmbedder
from corag.readers.cached import CachedReader
from corag.registry import SUMMARIZERS
from corag.text.data import DataFolder, Query
from corag.text.tokens import token_counter
from corag.types import Reader
from experiments.data.pools import Pool, PoolName, check_counts, content_hash, drawn, open_pool
from experiments.evaluation.comparison_tables import markdown, methods_plot, show
from experiments.evaluation.evaluate import FAILURES, average, measure, versions
from experiments.evaluation.methods import Methods, make_methods, make_reader
from experiments.run.journal import Journal, fingerprint, output_file, write_atomically

MISTAKE = 2


@dataclass(frozen=True)
class QuestionSet:
    """Questions to compare methods on.

    Attributes:
        name: What tables and files call it.
        data: Data folder, below the root of the comparison.
        split: Which questions.
        pool: Where candidates come from; see `corag evaluate`.
        num_candidates: Chunks offered per question with the corpus as pool.
        limit: Only the first questions of the split.
        sample: Only so many of these, drawn at random.
    """

    name: str
    data: str
    split: str = "dev"
    pool: PoolName = "auto"
    num_candidates: int = 20
    limit: int | None = None
    sample: int | None = None

    def __post_init__(self) -> None:
        if not self.name.replace("-", "").replace("_", "").isalnum():
            raise InputError(f"a set is called {self.name!r}; its name is part of file names: use letters and digits")
        check_counts(self.limit, self.num_candidates, self.sample)


@dataclass(frozen=True)
class ComparisonConfig:
    """Compare methods on several sets of questions at several budgets.

    Attributes:
        sets: The questions.
        root: Folder of the data folders.
        methods: Selectors; see `corag evaluate`.
        budgets: The most tokens a selection may cost.
        reranker: Values chunks for every method that reranks and names no other.
        reader: Answers the questions; see `corag evaluate`.
        summarizer: Makes texts shorter, for methods that put summaries into the prompt.
        embedder: Embeds questions and passages.
        latency_questions: Questions of each set on which latency is measured, after one more that warms up.
        seed: Of the draws of questions.
        only: Names of sets, separated by commas: measure these and leave the others for another time or process.
        out: Folder for results: of each set at each budget what `corag evaluate` writes, and a table of all.
        figure: SVG file: quality against tokens.
        quiet: No progress and no tables.
    """

    sets: list[QuestionSet]
    root: str = "../shared/data"
    methods: str = "all"
    budgets: tuple[int, ...] = (256, 512, 1024)
    reranker: str = "minilm-softsim"
    reader: str = "extractive"
    summarizer: str = "extractive"
    embedder: str = "minilm"
    latency_questions: int = 10
    seed: int = 0
    only: str | None = None
    out: str = "runs/comparison"
    figure: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        names = [one.name for one in self.sets]
        if not names or len(set(names)) < len(names):
            raise InputError(f"the sets are called {', '.join(names) or '(none)'}; give at least one, each named alone")
        if unknown := set(self.wanted) - set(names):
            raise InputError(f"only names {', '.join(sorted(unknown))}, but the sets are called {', '.join(names)}")
        if not self.budgets or min(self.budgets) < 1:
            raise InputError(f"budgets are {self.budgets}; give at least one, each of at least 1 token")
        if self.latency_questions < 1:
            raise InputError(f"latency_questions must be at least 1, got {self.latency_questions}; 10 are usual")

    @property
    def wanted(self) -> list[str]:
        """The names of the sets to measure."""
        return [one.name for one in self.sets] if self.only is None else [part.strip() for part in self.only.split(",")]


def comparison(config: ComparisonConfig) -> dict[str, list[dict[str, Any]]]:
    """Run the comparison that a config describes; an interrupted one goes on where it stopped.

    Returns:
        For each set its results, one for each budget, as `corag evaluate` gives them.
    """
    out = Path(config.out)
    figure = None if config.figure is None else output_file(config.figure)
    runs = [_Run(one, config, out) for one in config.sets if one.name in config.wanted]
    results = {run.questions.name: run.finished() for run in runs}
    open_runs = [run for run in runs if results[run.questions.name] is None]
    # What takes longest first; latency then is measured with nothing else under way.
    for run in open_runs:
        run.measure_quality()
    for run in open_runs:
        run.measure_latency()
        results[run.questions.name] = run.finish()
    complete = {name: found for name, found in results.items() if found is not None}
    write_atomically(out / "comparison.md", "\n".join(markdown(name, found) for name, found in complete.items()))
    if figure is not None:
        write_atomically(figure, methods_plot(complete))
    return complete


class _Run:
    """The comparison on one set."""

    def __init__(self, questions: QuestionSet, config: ComparisonConfig, out: Path) -> None:
        self.questions, self.config = questions, config
        self._folder = DataFolder.open(Path(config.root) / questions.data)
        self._queries = drawn(self._folder.split(questions.split, questions.limit), questions.sample, config.seed)
        left_out = ("sets", "root", "only", "out", "figure", "quiet")
        self._settings = {
            "set": asdict(questions),
            **{name: value for name, value in asdict(config).items() if name not in left_out},
            "budgets": list(config.budgets),  # as JSON gives it back
        }
        self._work = fingerprint([self._settings, content_hash(self._folder, self._queries, None), versions()])
        self._files = {budget: out / f"{questions.name}-{budget}.json" for budget in config.budgets}
        self._journal_file = out / f"{questions.name}.journal.jsonl"

    @cached_property
    def _embedder(self) -> CachedEmbedder:
        return CachedEmbedder(corag.embedder(self.config.embedder))

    @cached_property
    def _pool(self) -> Pool:
        return open_pool(
            self._folder,
            self._queries,
            self._embedder,
            pool=self.questions.pool,
            num_candidates=self.questions.num_candidates,
            quiet=self.config.quiet,
        )

    def _methods(self, reader: Reader, *, shared: bool) -> Methods:
        """Return the methods; what is shared is rerankers and summarizer, beside the embedder that always is."""
        tokens = token_counter()
        offered: dict[str, Any] = {
            "tokens": tokens,
            "reranker": self.config.reranker,
            "reader": reader,
            "summarizer": self.config.summarizer,
            "embedder": self._embedder,
        }
        if shared:
            takes = SUMMARIZERS.settings(self.config.summarizer)
            settings = {name: offered[name] for name in ("tokens", "embedder") if name in takes}
            offered["summarizer"] = corag.summarizer(self.config.summarizer, **settings)
        return make_methods(self.config.methods, offered, shared=shared)

    def finished(self) -> list[dict[str, Any]] | None:
        """Return the results where they stand on disk."""
        try:
            texts = [file.read_text(encoding="utf-8") for file in self._files.values()]
            found: list[dict[str, Any]] = [json.loads(text) for text in texts]
            return found if all(result["work"] == self._work for result in found) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def measure_quality(self) -> None:
        """Write into the journal a row for each budget, question and method."""
        reader, tokens = CachedReader(make_reader(self.config.reader)), token_counter()
        selectors = self._methods(reader, shared=True).selectors
        with (
            Journal(self._journal_file, self._work) as journal,
            progress(self.questions.name, quiet=self.config.quiet) as report,
        ):
            for number, query in enumerate(self._queries, start=1):
                for budget in self.config.budgets:
                    if (key := f"{budget} {query.id}") not in journal.units:
                        rows = measure(query, self._pool, selectors, reader, budget, tokens, self._embedder)
                        for row in rows.values():
                            row.pop("latency_ms", None)
                        journal.add(key, rows)
                report(number, len(self._queries))

    def measure_latency(self) -> None:
        """Write into the journal the milliseconds of each selection, for each budget and method."""
        # Spread out: questions side by side may share a document, whose chunks are then no longer new.
        wanted = min(self.config.latency_questions + 1, len(self._queries))
        timed = [self._queries[int(place)] for place in np.linspace(0, len(self._queries) - 1, wanted)]
        with (
            Journal(self._journal_file, self._work) as journal,
            progress(f"{self.questions.name}, latency", quiet=self.config.quiet) as report,
        ):
            for number, budget in enumerate(self.config.budgets, start=1):
                if (key := f"{budget} latency") not in journal.units:
                    journal.add(key, self._latencies(timed, budget))
                report(number, len(self.config.budgets))

    def _latencies(self, queries: Sequence[Query], budget: int) -> dict[str, list[float]]:
        selectors = self._methods(make_reader(self.config.reader), shared=False).selectors
        found: dict[str, list[float]] = {name: [] for name in selectors}
        for place, query in enumerate(queries):
            candidates = self._pool.candidates(query)
            self._embedder.embed([query.question, *(candidate.chunk.text for candidate in candidates)])
            for name, selector in selectors.items():
                started = time.perf_counter()
                try:
                    selector.select(query.question, candidates, budget)
                except DataError:
                    raise
                except FAILURES:
                    # Counted where quality is measured.
                    continue
                # The first question warms up, unless it is the only one.
                if place or len(queries) == 1:
                    found[name].append(1000 * (time.perf_counter() - started))
        return found

    def finish(self) -> list[dict[str, Any]]:
        """Write the results from the journal, and return them."""
        made = self._methods(make_reader(self.config.reader), shared=True)
        results = []
        with Journal(self._journal_file, self._work) as journal:
            for budget, file in self._files.items():
                units = [journal.units[f"{budget} {query.id}"] for query in self._queries]
                rows = {name: [unit[name] for unit in units] for name in made.selectors}
                latencies = journal.units[f"{budget} latency"]
                result = {
                    "data": self.questions.data,
                    "split": self.questions.split,
                    "budget_tokens": budget,
                    "queries": len(self._queries),
                    "queries_without_gold": sum(not query.gold for query in self._queries),
                    "pool": self._pool.name,
                    "methods": [
                        {"method": name, **average(rows[name]), **_quantiles(latencies[name])} for name in rows
                    ],
                    "left_out": dict(made.left_out),
                    "config": self._settings,
                    "versions": versions(),
                    "seed": self.config.seed,
                    "work": self._work,
                }
                lines = [json.dumps({"method": name, **row}, ensure_ascii=False) for name in rows for row in rows[name]]
                write_atomically(file.with_suffix(".rows.jsonl"), "\n".join(lines) + "\n")
                write_atomically(file, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
                results.append(result)
            journal.remove()
        return results


def _quantiles(latencies_ms: Sequence[float]) -> dict[str, float | None]:
    latency = average([{"latency_ms": value} for value in latencies_ms])
    names = ("latency_ms_median", "latency_ms_p95")
    return {name: latency[name] if latencies_ms else None for name in names}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(
        prog="python -m experiments.evaluation.comparison",
        description=(ComparisonConfig.__doc__ or "").split("\n", 1)[0],
    )
    parser.add_argument("--config", action="config", help="YAML file with settings.")
    parser.add_class_arguments(ComparisonConfig)
    try:
        values = parser.instantiate(parser.parse_args(arguments)).as_dict()
        values.pop("config")
        config = ComparisonConfig(**values)
        results = comparison(config)
    except CoragError as error:
        say(f"error: {error}")
        return MISTAKE
    if not config.quiet:
        for name, found in results.items():
            show(name, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
