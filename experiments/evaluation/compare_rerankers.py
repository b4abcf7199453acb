"""All rerankers side by side on questions that no adapter has learnt from.

Selection, evidence and answers are measured by `evaluate`; which questions are unseen, and what their
candidates are, is decided as in the training of the adapters.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import corag
from corag.cli.console import progress, say
from corag.errors import CoragError, InputError
from corag.models.cached import CachedEncoder
from corag.models.minilm import TextEncoder, minilm_encoder
from corag.readers.cached import CachedReader
from corag.rerankers.cached import CachedReranker
from corag.rerankers.evidence.reranker import EvidenceReranker
from corag.selectors.corag.selector import DEFAULT_SURROGATE
from corag.text.data import Query
from corag.text.documents import SEPARATOR
from corag.text.tokens import token_counter
from corag.types import Candidate, Reader, Reranker, Selector, TokenCounter
from experiments.adapters.evidence.config import EvidenceSource
from experiments.adapters.evidence.pools import Pooled, open_corpus, pools, questions_of
from experiments.data.pools import Pool, content_hash
from experiments.evaluation.compare_rerankers_table import replace_table, table_of
from experiments.evaluation.diversity import diversity, mean_interval
from experiments.evaluation.evaluate import average, compare, versions
from experiments.evaluation.methods import make_methods, parse_method
from experiments.run.journal import Journal, fingerprint, write_atomically

MISTAKE = 2
CACHE_MB = 16
"""Megabytes of passages that a reranker keeps: those of one question, which both budgets ask for."""
Rows = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Of one question: its row by budget and method."""


@dataclass(frozen=True)
class CompareConfig:
    """Compare rerankers, under several selectors, on questions that no adapter has learnt from.

    Attributes:
        data: Folder that holds the data folders.
        out: Folder for `compare.json` and for what an unfinished comparison has done.
        sources: Which questions, and where their candidates come from.
        rerankers: Names, with settings if need be: `minilm-cosine:precision=bf16`.
        selectors: Names, with settings if need be; each is used with each reranker.
        instead: By reranker and selector, `minilm-cosine corag`, the selector with other settings to use there.
        budgets: Tokens.
        reader: Answers; with settings if need be.
        baseline: Reranker and selector that are to be beaten.
        challenger: Reranker and selector that are to beat them.
        only: Data folders to go through in this run; none for all. Several runs may share the work, and a last one
            finds everything done.
        write: A Markdown file whose text between `<!-- table -->` and `<!-- /table -->` becomes the tables.
        seed: Of the intervals.
        quiet: No progress.
    """

    data: str
    out: str
    sources: tuple[EvidenceSource, ...]
    rerankers: tuple[str, ...]
    selectors: tuple[str, ...] = ("naive", "corag")
    instead: Mapping[str, str] = field(default_factory=dict)
    budgets: tuple[int, ...] = (256, 384)
    reader: str = "minilm-reader"
    baseline: str = "minilm-cosine naive"
    challenger: str = "minilm-multihop corag"
    only: tuple[str, ...] = ()
    write: str | None = None
    seed: int = 0
    quiet: bool = False

    def __post_init__(self) -> None:
        for name in ("sources", "rerankers", "selectors", "budgets"):
            if not getattr(self, name):
                raise InputError(f"{name} is empty; give at least one")
        if min(self.budgets) < 1:
            raise InputError(f"budgets must be at least 1 token each, got {self.budgets}")
        pairs = [f"{reranker} {selector}" for reranker in self.reranker_names for selector in self.selector_names]
        if len(set(pairs)) < len(pairs):
            raise InputError(f"a reranker or a selector stands twice among {pairs}; leave one out")
        for pair in (*self.instead, self.baseline, self.challenger):
            if pair not in pairs:
                raise InputError(f"{pair!r} is no reranker and selector of this comparison; they are {pairs}")
        folders = [source.data for source in self.sources]
        if unknown := set(self.only).difference(folders):
            raise InputError(f"only names {sorted(unknown)}, which are no data folders of the sources {folders}")
        if len(set(folders)) < len(folders):
            raise InputError(f"sources names a data folder twice: {folders}; leave one out")

    @property
    def reranker_names(self) -> tuple[str, ...]:
        """The rerankers without their settings."""
        return tuple(parse_method(text).name for text in self.rerankers)

    @property
    def selector_names(self) -> tuple[str, ...]:
        """The selectors without their settings."""
        return tuple(parse_method(text).name for text in self.selectors)


def compare_rerankers(config: CompareConfig) -> dict[str, Any]:
    """Run a comparison; one that was stopped goes on with the questions that are missing.

    Returns:
        What `compare.json` holds: figures of each source, budget and method, the lead of the challenger, diversity.
    """
    out = Path(config.out)
    chosen = [source for source in config.sources if not config.only or source.data in config.only]
    units = {source.data: _measured(config, source, out) for source in chosen}
    result = {
        "sources": [_source_figures(config, source, *units[source.data]) for source in chosen],
        "diversity": _diversities(config, [rows for _, rows in units.values()], [source.data for source in chosen]),
        "config": {name: value for name, value in asdict(config).items() if name not in ("out", "quiet", "write")},
        "versions": versions(),
    }
    write_atomically(out / "compare.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    if config.write is not None:
        replace_table(Path(config.write), table_of(result))
    return result


# --- Measuring ---


def _measured(config: CompareConfig, source: EvidenceSource, out: Path) -> tuple[dict[int, float], dict[str, Rows]]:
    """Return the share of the questions whose evidence fits each budget, and the rows of each question."""
    source = replace(source, unanswerable=0.0)
    tokens = token_counter()
    # One encoder for all: every passage is encoded once for the pools and the adapters, and kept for the next run.
    encoder = CachedEncoder(minilm_encoder(), batch=256, cache_mb=0, path=out / f"{source.data}.states.sqlite")
    corpus = open_corpus(config.data, source.data, encoder)
    queries = questions_of(corpus.folder, source)
    settings = asdict(config)
    names = ("rerankers", "selectors", "instead", "budgets", "reader")
    content = content_hash(corpus.folder, corpus.folder.queries, None)
    # A row depends on its question alone, so another limit goes on with the same journal.
    unlimited = asdict(replace(source, limit=0))
    work = fingerprint([unlimited, {name: settings[name] for name in names}, content, versions()])
    with Journal(out / f"{source.data}.journal.jsonl", work) as journal:
        questions = pools(corpus, source, queries)
        if any(query.id not in journal.units for query in queries):
            pool = Pool(
                "candidates",
                {
                    pooled.id: [Candidate(*given) for given in zip(pooled.chunks, pooled.similarities, strict=True)]
                    for pooled in questions
                },
            )
            reading = parse_method(config.reader)
            reader = CachedReader(corag.reader(reading.name, **reading.settings))
            selectors = _selectors(config, tokens, encoder, out / f"{source.data}.values.sqlite")
            with progress(f"compare on {source.data}", quiet=config.quiet) as told:
                for number, query in enumerate(queries, start=1):
                    if query.id not in journal.units:
                        journal.add(query.id, _rows(query, pool, selectors, reader, config.budgets, tokens))
                    told(number, len(queries))
        rows = {query.id: journal.units[query.id] for query in queries}
    return {budget: _ceiling(questions, budget, tokens) for budget in config.budgets}, rows


def _selectors(config: CompareConfig, tokens: TokenCounter, encoder: TextEncoder, values: Path) -> dict[str, Selector]:
    """Return every selector with every reranker, by their names."""
    rerankers = {parse_method(text).name: _reranker(text, encoder, values) for text in config.rerankers}
    offered = {"tokens": tokens, "surrogate": rerankers.get(DEFAULT_SURROGATE)}
    found: dict[str, Selector] = {}
    for reranker_name, reranker in rerankers.items():
        for selector, selector_name in zip(config.selectors, config.selector_names, strict=True):
            label = f"{reranker_name} {selector_name}"
            made = make_methods(config.instead.get(label, selector), {**offered, "reranker": reranker})
            (found[label],) = made.selectors.values()
    return found


def _reranker(text: str, encoder: TextEncoder, values: Path) -> Reranker:
    """Return a reranker that does nothing twice: not over selectors and budgets, and where it can over adapters."""
    method = parse_method(text)
    made = corag.reranker(method.name, **method.settings)
    if isinstance(made, EvidenceReranker):
        return EvidenceReranker(made.parts, encoder=encoder, cache_mb=CACHE_MB)
    return CachedReranker(made, values) if getattr(made, "identity", None) else made


def _rows(
    query: Query,
    pool: Pool,
    selectors: Mapping[str, Selector],
    reader: Reader,
    budgets: Sequence[int],
    tokens: TokenCounter,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rows of one question: all budgets in turn, so that what is known of its passages serves all."""
    found = {}
    for budget in budgets:
        rows = compare([query], pool, selectors, reader, budget, tokens, quiet=True)
        found[str(budget)] = {label: row for label, (row,) in rows.items()}
    return found


def _ceiling(questions: Sequence[Pooled], budget: int, tokens: TokenCounter) -> float:
    texts = [SEPARATOR.join(pooled.chunks[index].text for index in pooled.gold) for pooled in questions]
    fits = [bool(pooled.gold) for pooled in questions] & (tokens.count(texts) <= budget)
    return float(np.mean(fits))


# --- Figures ---


def _source_figures(
    config: CompareConfig, source: EvidenceSource, ceilings: Mapping[int, float], rows: Mapping[str, Rows]
) -> dict[str, Any]:
    """Return the figures of one source."""
    name = f"{source.data}, {source.split}" + (", held out" if source.part == "held-out" else "")
    budgets = []
    for budget in config.budgets:
        of_budget = [of_question[str(budget)] for of_question in rows.values()]
        methods = [
            {"method": label, **average([of_question[label] for of_question in of_budget])} for label in of_budget[0]
        ]
        budgets.append(
            {
                "budget_tokens": budget,
                "ceiling": ceilings[budget],
                "methods": methods,
                "lead": _lead(config, of_budget),
            }
        )
    return {"name": name, "data": source.data, "questions": len(rows), "budgets": budgets}


def _lead(config: CompareConfig, rows: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, float]:
    """Return what the challenger gains over the baseline: means of differences, of F1 with its 95% interval."""
    pairs = [(of_question[config.challenger], of_question[config.baseline]) for of_question in rows]

    def differences(name: str) -> NDArray[np.float64]:
        return np.array([one[name] - other[name] for one, other in pairs if name in one and name in other], dtype=float)

    low, high = mean_interval(differences("f1"), seed=config.seed)
    spent = [float(np.mean([pair[side]["cost_tokens"] for pair in pairs])) for side in (0, 1)]
    return {
        "full_evidence": float(differences("full_evidence").mean()),
        "f1": float(differences("f1").mean()),
        "f1_low": low,
        "f1_high": high,
        "share_of_tokens": spent[0] / spent[1],
    }


def _diversities(
    config: CompareConfig, sources: Sequence[Mapping[str, Rows]], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return how much rerankers differ in the F1 of their answers: on each source, and on all."""
    found = []
    for budget in config.budgets:
        for selector in config.selector_names:
            labels = [f"{reranker} {selector}" for reranker in config.reranker_names]
            scores = [
                np.array([[rows[str(budget)][label].get("f1", 0.0) for label in labels] for rows in units.values()])
                for units in sources
            ]
            for name, of_source in [*zip(names, scores, strict=True), ("all", np.concatenate(scores))]:
                measured = diversity(config.reranker_names, of_source, seed=config.seed)
                found.append({"questions_of": name, "budget_tokens": budget, "selector": selector, **asdict(measured)})
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(
        prog="python -m experiments.evaluation.compare_rerankers",
        description=(CompareConfig.__doc__ or "").split("\n", 1)[0],
    )
    parser.add_argument("--config", action="config", help="YAML file with settings.")
    parser.add_class_arguments(CompareConfig)
    values = vars(parser.instantiate(parser.parse_args(arguments)))
    values.pop("config")
    try:
        result = compare_rerankers(CompareConfig(**values))
    except CoragError as error:
        say(f"error: {error}")
        return MISTAKE
    sys.stdout.write(table_of(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
