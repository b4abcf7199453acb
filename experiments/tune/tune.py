"""`corag tune`: from a user's questions to a checkpoint and a page about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from corag.checks import check_budget
from corag.cli.console import progress, say
from corag.errors import DataError, InputError
from corag.models.cached import CachedEmbedder
from corag.models.runtime import WHERE, in_runtime
from corag.selectors.corag.routing import Prices
from corag.text.data import DataFolder, Query
from experiments.data.config import comma_separated
from experiments.data.pools import content_hash, drawn, resolve
from experiments.data.splits import questions_of
from experiments.protocol.kinds import groups_of, is_sealed, read_kinds, sealed_ids
from experiments.run.journal import Journal, fingerprint, versions
from experiments.run.track import UNMEASURED, log_run, tracked
from experiments.tune.checkpoint import write_checkpoint
from experiments.tune.choose import Chosen, choose, labelled, priors
from experiments.tune.config import LEAST_QUESTIONS, TuneConfig
from experiments.tune.configurations import DEFAULT, Configuration, parse_configurations, to_label
from experiments.tune.dial import DialPoint, dial
from experiments.tune.router import with_examples
from experiments.tune.sweep import Labels, Sweep, sweep_settings
from experiments.tune.table import SHIPPED, read_labels

SECONDS = 0.25
"""Of one core for a question under one configuration: 20 passages of 150 tokens, and a context read."""
EMBEDDER = "minilm"
NOT_WORK = (
    "out",
    "splits",
    "limit",
    "sample",
    "configurations",
    "answer",
    "evidence_weight",
    "prefer",
    "labels",
    "seed",
    "quiet",
    *UNMEASURED,
    *WHERE,
)


@dataclass(frozen=True)
class Tuned:
    """What a tuning found.

    Attributes:
        chosen: What was chosen, and why.
        names: The configurations, the default first.
        means: Mean figures of each configuration.
        curve: Quality, tokens and time at rising prices.
        prices: What tokens and time cost.
        questions: Number of questions.
        groups: Number of groups of questions that share documents.
        sealed: Number of questions left out because they are sealed.
    """

    chosen: Chosen
    names: Sequence[str]
    means: dict[str, dict[str, float]]
    curve: Sequence[DialPoint]
    prices: Prices
    questions: int
    groups: int
    sealed: int

    @property
    def keeps_default(self) -> bool:
        """Whether the checkpoint does what `corag` does without one."""
        return self.chosen.configuration == DEFAULT and self.chosen.router is None

    def usage(self, out: str) -> str:
        """Return how the checkpoint in a folder is used."""
        command = f"corag ask 'your question' --agent {out}"
        if self.keeps_default:
            return f"corag does the same without it; with a price it can differ: {command} --prefer tokens"
        return f"use it with: {command}" if self.chosen.lead.mean > 0 else f"to try it all the same: {command}"

    @property
    def verdict(self) -> str:
        """Whether to use it, in a sentence."""
        lead = self.chosen.lead
        if self.keeps_default:
            return "Keep the default: no other configuration is expected to serve these questions better."
        if lead.low > 0:
            return f"Use it: questions that took no part gained {lead}."
        if lead.mean > 0:
            return f"Probably use it: questions that took no part gained {lead}, which may be chance; more would tell."
        return f"Keep the default: questions that took no part gained nothing, {lead}."


@tracked
@in_runtime
def tune(config: TuneConfig) -> Tuned:
    """Label, choose, and write the checkpoint."""
    check_budget(config.budget)
    folder = DataFolder.open(config.data)
    queries, sealed = _questions(folder, config)
    pool = resolve(config.pool, queries, config.index)
    configurations = _configurations(config, from_corpus=pool == "corpus")
    groups = groups_of(folder, queries)
    if not config.quiet:
        minutes = max(1, round(SECONDS * len(queries) * len(configurations) / 60))
        say(
            f"{len(queries)} questions in {len(set(groups))} groups that share documents, {len(configurations)} "
            f"configurations: about {minutes} minute{'s' * (minutes > 1)} on one core"
            + (f"; {sealed} sealed ones left out" * bool(sealed))
        )
    out = Path(config.out)
    if out.exists() and not out.is_dir():
        raise InputError(f"out is {config.out!r}, which is a file; give a folder")
    labels, seconds = _labels(folder, queries, configurations, config, out / "labels.jsonl")
    texts = [query.question for query in queries]
    vectors = CachedEmbedder(EMBEDDER).vectors(texts)
    names = list(map(str, configurations))
    questions = labelled(names, labels, groups, vectors, config.quality, budget=config.budget, seconds=seconds)
    known = priors(_shipped(config.labels), names, DEFAULT, config.quality)
    chosen = choose(questions, known, config.prices, seed=config.seed)
    if chosen.router is not None:
        chosen = replace(chosen, router=with_examples(chosen.router, vectors, texts))
    found = Tuned(
        chosen,
        names,
        _means(names, labels),
        dial(questions, chosen),
        config.prices,
        len(queries),
        len(set(groups)),
        sealed,
    )
    write_checkpoint(out, found, config, _record(config))
    log_run("tune", config.logger, out, out.name, asdict(config), found.means)
    return found


def _configurations(config: TuneConfig, *, from_corpus: bool) -> tuple[Configuration, ...]:
    default = Configuration(DEFAULT)
    given = parse_configurations(config.configurations) or to_label(from_corpus=from_corpus)
    return tuple(dict.fromkeys((default, *given)))


def _questions(folder: DataFolder, config: TuneConfig) -> tuple[list[Query], int]:
    """Return the questions that can be learned from, and how many are sealed; too few are a `DataError`."""
    splits = comma_separated(config.splits) or ["train"]
    every = [query for split in splits for query in questions_of(folder, split)]
    kinds, ids = read_kinds().kinds, sealed_ids()
    open_ = [query for query in every if not is_sealed(query, kinds, ids, folder)]
    read = config.reader != "none"
    useful = [query for query in open_ if query.gold or (read and query.answers)]
    if open_ and not useful:
        lack = "gold passages (and with reader none, answers do not count)" if not read else "answers or gold passages"
        raise DataError(
            f"none of the {len(open_)} questions of {folder.path}, {config.splits}, has {lack}; add them to "
            "queries.jsonl, or let a reader write answers: corag data references"
        )
    chosen = drawn(useful[: config.limit], config.sample, config.seed)
    sealed = len(every) - len(open_)
    if len(chosen) < LEAST_QUESTIONS:
        left_out = f" ({sealed} more are sealed, see docs/experiments.md)" if sealed else ""
        raise DataError(
            f"{folder.path}, {config.splits}, has {len(chosen)} questions with answers or gold passages{left_out}; at "
            f"least {LEAST_QUESTIONS} are needed to choose by, and 60 to 500 are usual"
        )
    if repeated := [name for name, number in Counter(query.id for query in chosen).items() if number > 1]:
        raise DataError(f"question {repeated[0]!r} of {folder.path} is in two of the splits {config.splits}; name one")
    return chosen, sealed


def _labels(
    folder: DataFolder,
    queries: Sequence[Query],
    configurations: Sequence[Configuration],
    config: TuneConfig,
    path: Path,
) -> tuple[list[Labels], dict[str, float]]:
    """Return the labels of each question, and the seconds of each configuration."""
    sweep = Sweep(folder, config, sweep_settings(folder, configurations, config), configurations, config.index)
    settings = {name: value for name, value in asdict(config).items() if name not in NOT_WORK}
    work = fingerprint([settings, content_hash(folder, folder.queries, config.index), versions()])
    found = []
    with Journal(path, work) as journal, progress("label", quiet=config.quiet) as report:
        for _, labels in sweep.labels(queries, journal):
            found.append(labels)
            report(len(found), len(queries))
        key = f"{config.budget} seconds {fingerprint([[str(one) for one in configurations], len(queries)])}"
        if key not in journal.units:
            journal.add(key, sweep.seconds(queries))
        return found, journal.units[key]


def _shipped(path: str | None) -> list[dict[str, Any]]:
    """Return the rows of the labels over kinds; none where the table does not ship with this copy."""
    if path is None:
        return read_labels(SHIPPED) if SHIPPED.is_file() else []
    return read_labels(path)


def _means(names: Sequence[str], labels: Sequence[Labels]) -> dict[str, dict[str, float]]:
    figures = dict.fromkeys(figure for of_question in labels for row in of_question.values() for figure in row)
    return {
        name: {
            figure: float(np.mean(values))
            for figure in figures
            if (values := [of_question[name][figure] for of_question in labels if figure in of_question[name]])
        }
        for name in names
    }


def _record(config: TuneConfig) -> dict[str, Any]:
    settings = {name: value for name, value in asdict(config).items() if name not in ("out", "quiet", *UNMEASURED)}
    return {"settings": settings, "versions": versions(), "embedder": EMBEDDER, "features": ["query"]}
