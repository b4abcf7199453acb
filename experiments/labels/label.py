"""`corag label`: how well each configuration serves each question, by the measures of `corag evaluate`.

Questions are the units of work: a journal keeps finished ones.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from corag.budget import Budget
from corag.cli.console import progress, say
from corag.errors import DataError
from corag.models.runtime import in_runtime, merge_records, recording
from corag.selectors.corag.features import question_vectors
from corag.selectors.problem import SelectionProblem
from corag.text.data import Query
from corag.types import Candidate, Selector
from experiments.data.pools import content_hash
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.measure import Measuring
from experiments.evaluation.methods import Parts, with_shared_problem
from experiments.labels.config import LabelConfig
from experiments.labels.examples import SourceQuestions, read_sources
from experiments.labels.table import FIGURES, read_metadata, read_units, write_labels
from experiments.run.journal import TABLE, Journal, fingerprint, output_file, versions
from experiments.run.track import log_run

logger = logging.getLogger(__name__)

AT_ONCE = 16
"""Questions, at most, that are searched in lock-step and read together."""

MEASURED = ("budget_tokens", *FIGURES)
"""Figures whose means are logged."""


def show(config: LabelConfig) -> None:
    """Write the label table, and say what it is for."""
    out = label(config)
    say(f"labels in {out}; train an agent with: corag train --labels {out} --out runs/agent")


@in_runtime
def label(config: LabelConfig) -> Path:
    """Write the label table that a config describes; return its path. A table of other settings is a `DataError`."""
    out, (shard, count) = output_file(config.out, TABLE), config.number_of_shard
    if config.shard:
        out = out.with_suffix(f".{shard}-of-{count}.parquet")
    sources = [part for source in read_sources(config) if (part := source.shard(shard, count)).queries]
    if not sources:
        raise DataError(f"shard {config.shard} has no question; give fewer shards")
    queries = [query for source in sources for query in source.queries]
    evaluation = EvaluateConfig(
        data=str(sources[0].folder.path), methods=tuple(config.configuration_list()), budget=config.budget,
        budget_for=config.budget_for, reader=config.reader, tokenizer=config.tokenizer, embedder=config.embedder,
    )  # fmt: skip
    parts = Parts(evaluation, queries)
    settings = config.measured_settings("shard")
    asked = [(source.key(query), source.about(query)) for source in sources for query in source.queries]
    work = _work(config, sources, parts)
    finished: dict[str, Any] = {}
    if out.exists():
        finished = read_units(out) if read_metadata(out).get("work") == work else {}
        if not finished or finished.keys() - dict(asked):
            raise DataError(
                f"{out} holds labels made with other settings, questions, data or versions; choose another output, or "
                "delete it to label anew"
            )
        if len(finished) == len(asked):
            logger.info("%s is complete already", out)
            return out
    selectors = parts.methods(parts.config.methods).selectors  # refuses wrong settings before anything is written
    with Journal(out.with_suffix(".journal.jsonl"), work) as journal:
        journal.units |= finished
        _label_missing(config, sources, parts, selectors, journal)
        units = [journal.units[key] for key, _ in asked]
        # More questions may join groups.
        rows = [{**row, **about} for (_, about), unit in zip(asked, units, strict=True) for row in unit["rows"]]
        metadata = {
            "work": work,
            "embedder": parts.embedder.name,
            "tokenizer": parts.tokens.name,
            # Of a language model its name, temperature, seed and prompt.
            "reader": getattr(parts.prompted, "identity", None),
            "settings": settings,
            "versions": versions(),
            "models": merge_records(unit["models"] for unit in units),
        }
        table = write_labels(out, rows, metadata)
        means = table.group_by("configuration", use_threads=False).aggregate([(name, "mean") for name in MEASURED])
        figures = {row["configuration"]: {name: row[f"{name}_mean"] for name in MEASURED} for row in means.to_pylist()}
        log_run("label", config, out, out.stem, settings, figures)
        journal.remove()
    return out


def _work(config: LabelConfig, sources: Sequence[SourceQuestions], parts: Parts) -> str:
    """Return a hash of all that the labels of a question depend on: not of how many others are asked for."""
    every: dict[str, Any] = {"limit": None, "sample": None}
    settings = replace(config, **every, sources=tuple(replace(source, **every) for source in config.sources))
    data = [
        (source.settings.pool, content_hash(source.folder, config.index, source.settings.run)) for source in sources
    ]
    return fingerprint([settings.measured_settings("shard"), data, parts.content(config.configuration_list())])


def _label_missing(
    config: LabelConfig,
    sources: Sequence[SourceQuestions],
    parts: Parts,
    methods: Mapping[str, Selector],
    journal: Journal,
) -> None:
    """Add the questions that a journal lacks, a few at a time.

    Memory is shared: a passage is encoded once for all rerankers, an order is valued once by each for all selectors of
    one unit, and a context is read once.
    """
    budget, problems = parts.budget(config.budget), dict[Any, SelectionProblem]()
    selectors = {name: with_shared_problem(selector, name, problems) for name, selector in methods.items()}
    # Of a server with few prompts at a time few questions, so that little is asked again after an interruption.
    at_once = min(AT_ONCE, int(getattr(parts.prompted, "max_concurrent", AT_ONCE)))
    opened = []
    for source in sources:
        if missing := [query for query in source.queries if source.key(query) not in journal.units]:
            asked = missing if source.settings.run is None else source.queries  # a run may rank nothing for the last
            with recording() as embedded:
                pool = source.open_pool(asked, parts.embedder, quiet=config.quiet)
            opened.append((source, missing, pool, embedded()))
    total = sum(len(source.queries) for source in sources)
    with progress("label", quiet=config.quiet) as report:
        report(len(journal.units), total)
        for source, missing, pool, embedded_by in opened:
            measuring = Measuring(selectors, budget, parts, source.folder.documents, skip_unanswered=True)
            for start in range(0, len(missing), at_once):
                questions = [(query, pool[query.id]) for query in missing[start : start + at_once]]
                problems.clear()
                with recording() as models:
                    measured = measuring.rows(questions)
                    vectors = [_vectors(parts, budget, *question) for question in questions]
                ran = merge_records([embedded_by, models()])
                for (query, _), of_methods, of_question in zip(questions, measured, vectors, strict=True):
                    about = {**source.about(query), "budget_tokens": budget.tokens}
                    rows = [
                        {**about, "configuration": name, **{figure: row.get(figure) for figure in (*FIGURES, "error")}}
                        for name, row in of_methods.items()
                    ]
                    rows[0] |= of_question
                    journal.add(source.key(query), {"rows": rows, "models": ran})
                    if error := next((row["error"] for row in rows if row["error"]), None):
                        logger.warning("question %s failed: %s", source.key(query), error)
                report(len(journal.units), total)


def _vectors(parts: Parts, budget: Budget, query: Query, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Return the vectors that an agent's features are made of; half precision is the table's."""
    tokens = budget.for_context(query.question)
    [vectors] = question_vectors(
        [SelectionProblem(query.question, candidates, parts.tokens, tokens).prefiltered()], parts.embedder
    )
    return {
        "similarities": vectors.similarities.astype(np.float32).tolist(),
        "query_vector": vectors.query.astype(np.float16).tolist(),
        "candidates_vector": vectors.candidates.astype(np.float16).tolist(),
    }
