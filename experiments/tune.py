"""`corag tune`: of the configurations that keep what is promised on a user's own questions, the one that spends least.

Every configuration is labelled as by `corag label`; the choice is cross-validated by document and compared with the
default and with filling the budget. Letters: `n` questions, `C` configurations.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import agent
from common.configuration import parse, split_parts
from corag.budget import AUTO
from corag.checks import check_budget, check_range
from corag.cli.console import say
from corag.cli.page import Page, Section, Table
from corag.errors import DataError, InputError
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime, in_runtime
from corag.types import FloatArray
from experiments.data.config import CandidateSettings, candidate_settings, spell_out
from experiments.data.splits import divide
from experiments.evaluation.methods import FILLING
from experiments.evaluation.metrics import context_recall
from experiments.labels.config import LabelConfig
from experiments.labels.examples import read_sources
from experiments.labels.label import label
from experiments.labels.table import Labels, read_labels
from experiments.report.difference import paired_difference
from experiments.run.journal import versions
from experiments.run.track import Tracking, log_run

DEFAULT = "corag"
CONFIGURATIONS = ",".join(
    [DEFAULT, FILLING, "corag(keep=0.9)", "corag(keep=0.95)", "corag(keep=0.99)"]
    + [f"corag(unit=passage, reranker=minilm-late, cost_weight={price})" for price in (0.01, 0.03, 0.1)]
    + [f"corag(unit=sentence, reranker=minilm-late, cost_weight={price})" for price in (0.02, 0.05, 0.1, 0.2)]
    + [f"corag(unit=sentence, reranker=minilm-evidence, cost_weight={price})" for price in (0.05, 0.1)]
)
LEAST_QUESTIONS, FOLDS = 20, 5
"""With fewer questions, each fold of the cross-validation has less than four."""
SAMPLES, DOUBT = 1000, 0.1
"""Resamples of the documents, and the share of them in which a configuration may keep less than is promised."""


@dataclass(frozen=True)
class TuneConfig(CandidateSettings, Runtime, Tracking):
    """Choose a configuration by your own questions (typical: 60-500).

    Attributes:
        data: Data folder, by path or name, whose questions have answers, gold passages or both.
        out: Folder for the checkpoint, for `--agent`. An interrupted run resumes.
        splits: Splits of the questions, separated by commas.
        budget: Token budget of the context.
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
    configurations: str | tuple[str, ...] = ""
    keep: float = 0.98
    tokenizer: str = AUTO
    index: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        Runtime.__post_init__(self)
        spell_out(self, "tokenizer")
        check_budget(self.budget)
        check_range("keep", self.keep, 0, 1, "it is a share")
        if not self.data:
            raise InputError("data is empty; give a data folder with --data, by path or name")
        if Path(self.out).is_file():
            raise InputError(f"out is {self.out!r}, which is a file; give a folder")


@in_runtime
def tune(config: TuneConfig) -> agent.ConfigurationAgent:
    """Label, choose and compare; write the agent to use, its labels and a page.

    Too few questions, or labels of other settings, are a `DataError`.
    """
    out, parts = Path(config.out), [*split_parts(CONFIGURATIONS), *split_parts(config.configurations)]
    labelling = LabelConfig(
        data=config.data, out=str(out / "labels.parquet"), splits=config.splits,
        configurations=tuple(dict.fromkeys(parts)), iterations="", explorations="", cost_weights="",
        budget=config.budget, budget_for="context", reader="none", tokenizer=config.tokenizer, index=config.index,
        quiet=config.quiet, **candidate_settings(config),
    )  # fmt: skip
    if (number := sum(len(source.queries) for source in read_sources(labelling))) < LEAST_QUESTIONS:
        raise DataError(
            f"{config.data}, {config.splits}: expected at least {LEAST_QUESTIONS} questions with answers or gold "
            f"passages, got {number}, not counting held-out ones (docs/experiments.md); 60 to 500 are usual. Add some, "
            "or let a reader write answers: corag data references"
        )
    path = label(labelling)
    labels = read_labels(str(path))
    used, page = choose(labels, config)
    card = agent.model_card(used.config, {"questions": len(labels), "versions": versions()}, page.markdown())
    agent.save(out, used, card, {path.name: path.read_bytes(), "report.html": page.html()})
    figures = {
        str(name): {measure: float(np.nanmean(values[:, column])) for measure, values in labels.measures.items()}
        for column, name in enumerate(labels.configurations)
    }
    log_run("tune", config, out, out.resolve().name, asdict(config), figures, pages={"report": page.html()})
    if not config.quiet:
        page.show()
    say(f"checkpoint and report in {out}; use it with: corag ask 'your question' --agent {out}")
    return used


def choose(labels: Labels, config: TuneConfig) -> tuple[agent.ConfigurationAgent, Page]:
    """Return the agent to use, and the page that says what it keeps and spends, cross-validated by document.

    The agent names one configuration for every question: the default where the chosen one does not keep what is
    promised on the questions that it was not chosen by, or spends no less.
    """
    held, tokens, rows = context_recall(labels.measures), labels.measures["cost_tokens"], np.arange(len(labels))
    groups = labels.group.tolist() if len(set(labels.group)) > 1 else list(labels.ids)
    parts = divide([""] * len(labels), groups, [1.0] * FOLDS)
    tuned = np.zeros(len(labels), dtype=np.int64)
    for fold in np.unique(parts):
        tuned[parts == fold] = best_first(labels.of(parts != fold), config.keep)[0][0]
    filling, default = (np.full(len(labels), labels.configurations.index(name)) for name in (FILLING, DEFAULT))
    compared, means = [], []
    for name, one in {"tuned": tuned, "the default": default, "filling the budget": filling}.items():
        means.append((held[rows, one].mean(), tokens[rows, one].mean()))
        beyond = paired_difference(held[rows, one], held[rows, filling], groups=groups)
        compared.append([name, f"{means[-1][0]:.3f}", f"{means[-1][1]:.0f}", str(beyond)])
    (share, cost), (theirs, spent), (filled, full) = means
    gains = cost < spent and share >= config.keep * filled
    order, least = best_first(labels, config.keep)
    best = labels.configurations[order[0]]
    name, share, cost = (f"`{best}`", share, cost) if gains else ("The default", theirs, spent)
    tokens_said = f"{abs(cost / max(full, 1) - 1):.0%} {'more' if cost > full else 'fewer'} tokens"
    decision = f"{name} keeps {share / max(filled, 1e-9):.0%} of what filling the budget does, with {tokens_said}."
    each = [
        [labels.configurations[one], f"{held[:, one].mean():.3f}", f"{tokens[:, one].mean():.0f}", f"{least[one]:.0%}"]
        for one in order
    ]
    note = f"At least: the share of what filling holds, exceeded in {1 - DOUBT:.0%} of resamples of the documents."
    by_fold = Table(["method", "context recall", "tokens", "beyond filling"], compared)
    by_name = Table(["configuration", "context recall", "tokens", "at least"], each, note=note)
    sections = [Section("On held-out questions (five folds by document)", [by_fold])]
    sections.append(Section("Each configuration, best first", [by_name]))
    about = f"{len(labels)} questions about {len(set(groups))} documents, {config.budget} tokens of context."
    page = Page(f"Tuned on {Path(config.data).resolve().name}", decision, sections, about)
    fallback = agent.Fallback(best if gains else parse(DEFAULT))
    return agent.ConfigurationAgent(agent.AgentConfig(labels.configurations, fallback)), page


def best_first(labels: Labels, keep: float) -> tuple[list[int], FloatArray]:
    """Return the configurations, best first, and the least share of what filling holds that each keeps, `[C]`.

    That is the share which is exceeded in all but `DOUBT` of resamples of the documents, 1 for filling itself. The best
    are those that keep the share `keep`, by their tokens; the others follow by what they keep.
    """
    groups, filling = np.unique(labels.group, return_inverse=True)[1], labels.configurations.index(FILLING)
    if not groups.any():  # all questions are about one document
        groups = np.arange(len(labels))
    held = np.zeros((groups.max() + 1, len(labels.configurations)))
    np.add.at(held, groups, context_recall(labels.measures))
    sums = np.random.default_rng(0).multinomial(len(held), np.full(len(held), 1 / len(held)), SAMPLES) @ held
    least = np.quantile(sums / np.maximum(sums[:, [filling]], 1e-9), DOUBT, axis=0)
    least[filling] = 1.0
    keeps, tokens = least >= keep, labels.measures["cost_tokens"].mean(axis=0)
    return np.lexsort((tokens, np.where(keeps, 0.0, -least), ~keeps)).tolist(), least
