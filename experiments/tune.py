"""`corag tune`: fit the value to a user's own questions, and choose a configuration; both are measured on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import agent
from common.checks import check_range
from common.configuration import Configuration, parse, split_parts
from common.storage import write_atomically
from corag.budget import AUTO
from corag.cli.console import say
from corag.cli.page import Page, Section, Table
from corag.errors import DataError, InputError
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime, in_runtime
from corag.registry import RERANKERS, SELECTORS
from experiments.adapters.fused import fit_own
from experiments.agents.targets import DEFAULT
from experiments.data.config import CandidateSettings, left_open
from experiments.data.splits import divide
from experiments.evaluation.methods import FILLING
from experiments.evaluation.metrics import context_recall
from experiments.evaluation.support import findable_answers
from experiments.labels.config import LabelConfig
from experiments.labels.examples import read_sources
from experiments.labels.label import label
from experiments.labels.table import Labels, read_labels, read_metadata, read_units
from experiments.report.difference import paired_difference
from experiments.run.journal import versions
from experiments.run.track import Tracking

CONFIGURATIONS = (DEFAULT, FILLING, *(f"corag(keep={share})" for share in (0.9, 0.95, 0.99)))
LEAST_QUESTIONS, FOLDS = 20, 4


@dataclass(frozen=True)
class TuneConfig(CandidateSettings, Runtime, Tracking):
    """Fit the value to your own questions, and choose a configuration by them (typical: 60-500).

    Attributes:
        data: Data folder, by path or name, whose questions have answers, gold passages or both.
        out: Folder for the checkpoint, for `--agent`, and for the fitted value. An interrupted run resumes.
        splits: Splits of the questions, separated by commas.
        budget: Token budget of the context.
        signals: Your own rerankers, separated by commas, that the value is to read beside what it reads already.
        configurations: Further selectors to choose from, separated by commas.
        keep: Share of what filling the budget holds of answers and evidence that has to be kept.
        tokenizer: Tokenizer that counts tokens; see `corag evaluate`.
        index: Index of the corpus; by default one is built in the cache folder.
        quiet: Show no progress and no table.
    """

    data: str
    out: str
    splits: str = "train"
    budget: int = 256
    signals: str | tuple[str, ...] = ""
    configurations: str | tuple[str, ...] = ""
    keep: float = 0.98
    tokenizer: str = AUTO
    index: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        Runtime.__post_init__(self)
        check_range("keep", self.keep, 0, 1, "it is a share")
        if Path(self.out).is_file():
            raise InputError(f"out is {self.out!r}, which is a file; give a folder")
        for part in split_parts(self.configurations):
            SELECTORS.check(part)
        for part in split_parts(self.signals):
            RERANKERS.check(part)


@in_runtime
def tune(config: TuneConfig) -> agent.ConfigurationAgent:
    """Write the fitted value, labels, the agent to use and a page; too few questions are a `DataError`."""
    out = Path(config.out)
    labelling = LabelConfig(
        data=config.data, out=str(out / "labels.parquet"), splits=config.splits, iterations="", explorations="",
        cost_weights="", budget=config.budget, budget_for="context", reader="none", tokenizer=config.tokenizer,
        index=config.index, quiet=config.quiet, logger=config.logger, **left_open(CandidateSettings(), config),
    )  # fmt: skip
    sources = read_sources(labelling)
    names = [source.key(query) for source in sources for query in source.queries]
    known = sum(bool(query.evidence or findable_answers(query)) for source in sources for query in source.queries)
    if known < LEAST_QUESTIONS:
        raise DataError(
            f"{config.data}, {config.splits}: expected at least {LEAST_QUESTIONS} questions that have gold, or answers "
            f"other than yes and no, and are not held out, got {known}; add some, or let a reader write answers: corag "
            "data references"
        )
    groups = [source.groups[query.id] for source in sources for query in source.queries]
    parts = divide([""] * len(names), groups if len(set(groups)) > 1 else names, [1.0] * FOLDS)
    fold = dict(zip(names, parts.tolist(), strict=True))
    table = Path(labelling.out)
    if table.exists():  # refused before the value in `out` is fitted anew
        chosen, settings = {"configurations": "", "limit": None, "sample": None}, labelling.measured_settings("shard")
        is_other = read_metadata(table)["settings"] | chosen != settings | chosen
        if is_other or read_units(table).keys() != set(names):
            raise DataError(f"{table} is of other questions or settings; choose another out, or delete it to tune anew")
    value, fitted = fit_own(sources, split_parts(config.signals), out, fold, quiet=config.quiet)
    asked = [*CONFIGURATIONS, *split_parts(config.configurations), *fitted]
    path = label(replace(labelling, configurations=tuple(dict.fromkeys(map(parse, asked)))))
    used, page = choose(read_labels(str(path)), config, fold, fitted)
    card = agent.model_card(used.config, {"questions": len(names), "versions": versions()}, page.markdown())
    agent.save(out / "checkpoint", used, card)
    write_atomically(out / "report.html", page.html())
    if not config.quiet:
        page.show()
    say(f"report in {out}; the configuration: --agent {out}{value and f'; the value: --reranker {value!r}'}")
    return used


def choose(
    labels: Labels, config: TuneConfig, fold: Mapping[str, int], fitted: Sequence[Configuration] = ()
) -> tuple[agent.ConfigurationAgent, Page]:
    """Return the agent to use, and the page that says what each configuration, and the fitted value, keeps and spends.

    Of the configurations that hold `keep` of what filling does, beyond chance, the one with the fewest tokens is named
    for every question; the default where that, on questions that it was not chosen by, does not, or spends no less.
    """
    # Where no passage answers, nothing is to be held.
    labels = labels.of(np.isfinite(context_recall(labels.measures)).all(axis=1))
    held, tokens, rows = context_recall(labels.measures), labels.measures["cost_tokens"], np.arange(len(labels))
    groups = np.array(labels.group if len(set(labels.group)) > 1 else labels.ids)
    parts = np.array([fold[name] for name in labels.ids])
    names = labels.configurations[: len(labels.configurations) - len(fitted)]
    filling = held[:, names.index(parse(FILLING))]

    def best(of: NDArray[np.bool_]) -> int:
        promise, compared = config.keep * filling[of], held[of].T[: len(names)]
        lows = [paired_difference(column, promise, groups=groups[of]).low for column in compared]
        return int(np.lexsort((tokens[of].mean(axis=0)[: len(names)], -np.minimum(0, lows)))[0])

    unseen = np.array([best(parts != part) for part in range(FOLDS)])
    methods = {"chosen": unseen[parts]} | {str(name): np.full(len(rows), one) for one, name in enumerate(names)}
    if fitted:
        methods["corag, its value fitted"] = len(names) + parts % 2
    means = {name: (held[rows, one].mean(), tokens[rows, one].mean()) for name, one in methods.items()}
    beyond = [paired_difference(held[rows, one], filling, groups=groups) for one in methods.values()]
    figures = zip(means.items(), beyond, strict=True)
    table = [[name, f"{share:.3f}", f"{cost:.0f}", f"{difference}"] for (name, (share, cost)), difference in figures]
    (share, cost), default, (filled, full) = (means[name] for name in ("chosen", DEFAULT, FILLING))
    gains, chosen = cost < default[1] and share >= config.keep * filled, names[best(rows >= 0)]
    if not gains:
        table[0][0], (share, cost) = "chosen, but not used", default
    decision = (
        f"{f'`{chosen}`' if gains else 'The default'} keeps {share / max(filled, 1e-9):.0%} of what filling the budget "
        f"does, with {cost / max(full, 1):.0%} of its tokens."
    )
    about = f"{len(rows)} questions about {len(set(groups))} documents, {config.budget} tokens of context."
    note = "Chosen and fitted: on questions not learned from, in folds by document. Beyond filling: 95% interval."
    shown = Table(["method", "context recall", "tokens", "beyond filling"], table, note=note)
    page = Page(f"Tuned on {Path(config.data).resolve().name}", decision, [Section("Results", [shown])], about)
    best_single = chosen if gains else DEFAULT
    return agent.ConfigurationAgent(agent.AgentConfig(tuple(names), best_single)), page
