"""`corag tune`: the shipped agent on a user's questions, and a page that says whether they gain from it.

The user's labels are those of `corag label`, and the utility is that of `experiments.agents.targets`. The network stays
as it is. What a configuration gives on the user's questions beyond what the network expects of it, shrunk by their
number, is added to its logit. Letters: `n` questions, `C` configurations.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

import agent
from agent import Configuration
from corag.checks import check_budget
from corag.cli.console import say
from corag.cli.page import Page, Section, Table
from corag.errors import DataError, InputError
from corag.models.runtime import in_runtime
from corag.naming import parse, split_parts
from corag.selectors.corag.agents import DEFAULT_AGENT, load_agent
from corag.selectors.corag.search import REFERENCE_TOKENS
from corag.types import FloatArray
from experiments.agents.compare import Choices, method_table, named
from experiments.agents.recipes import with_recipe_defaults
from experiments.agents.targets import FILLING, KEPT, QUALITY, TargetConfig, best_configuration, utility
from experiments.data.config import candidate_settings
from experiments.data.splits import divide, questions_of
from experiments.evaluation.metrics import kept
from experiments.labels.config import LabelConfig
from experiments.labels.examples import read_sources
from experiments.labels.label import label
from experiments.labels.table import Labels, read_labels
from experiments.protocol.held_out import not_to_learn
from experiments.report.decision import Contest, bottleneck
from experiments.report.difference import Difference, paired_difference
from experiments.report.measures import MEASURES, OF_ANSWERS, Row
from experiments.run.journal import versions
from experiments.run.track import log_run
from experiments.tune.config import LEAST_QUESTIONS, TuneConfig

FOLDS = 5
TEMPERATURE = 0.05
"""What one unit of a logit of the shipped agent is worth in utility: that of the soft targets it has learned from."""
OWN_WEIGHT = 40
"""Questions' worth of weight that the network's expectation has beside the user's labels. Chosen among 20, 40, 100 and
200 on data sets taken as a user's, each with an agent and values that do not know its kind; with 20 and 40 questions'
worth the gains differ by chance, with more the network's errors on new kinds remain."""
CAUTION = 1.0
"""Standard errors that the cross-validated gain must exceed 0 by for the agent to be changed."""
SAMPLES, DOUBT = 1000, 0.1
"""Resamples of the documents, and the share of them in which a configuration may keep less than is promised."""
DEFAULT_NAME, TUNED, ORACLE = "untuned agent", "tuned agent", "oracle"
LABELS_FILE, PAGE_FILE = "labels.parquet", "report.html"


@dataclass(frozen=True)
class Tuning:
    """What a tuning found.

    Attributes:
        labels: Of the questions that have a utility; `C` configurations.
        used: The agent to use: the tuned one, or the shipped one as it is.
        fallback: Of the tuned agent: the configuration of the highest expected utility on the user's questions.
        expected: Utility of each configuration that the tuned agent expects on these questions, beyond their mean
            over the configurations, `[C]`; or, under a promise, the least share of what filling holds that it keeps.
        choices: Configuration of each question by method, `[n]`; the tuned agent's by cross-validation.
        gain: Utility of the tuned agent beyond that of the default on questions that took no part.
        contest: The tuned agent against the default on these questions, by the metric and by tokens.
        keep: Promise; 0 without one.
        keeps_default: Whether the checkpoint is the shipped agent, as it is.
    """

    labels: Labels
    used: agent.ConfigurationAgent
    fallback: str
    expected: FloatArray
    choices: dict[str, Choices]
    gain: Difference
    contest: Contest
    keep: float = 0.0
    keeps_default: bool = False

    def decision(self) -> list[str]:
        """Return what to do, whether there are enough questions, and what limits the answers."""
        advice = (
            "keep the default, which is what the checkpoint holds" if self.keeps_default else f"use {self.contest.ours}"
        )
        missing = "no configuration has all evidence; try more candidates, another retrieval or a larger budget"
        limits = bottleneck(self._rows(), "f1", "F1", missing=missing)
        decision = [*self.contest.decision(advice), *limits]
        return [*decision, *([] if (promise := self.promise()) is None else [promise])]

    def promise(self) -> str | None:
        """Return which share of the evidence that filling holds is kept, at which share of its tokens, if known."""
        held, rows = kept(self.labels.measures), np.arange(len(self.labels))
        names = list(map(str, self.labels.configurations))
        if FILLING not in names or not np.isfinite(held).all():
            return None
        filling, chosen = names.index(FILLING), self.choices[DEFAULT_NAME if self.keeps_default else TUNED]
        pair = np.stack([held[rows, chosen], held[:, filling]], axis=1)
        if not pair.any(axis=0).all():
            return None
        groups = self.labels.group.tolist()
        share = paired_difference(pair, pair[:, [1, 1]], groups=groups, statistic=lambda of: of[..., 0] / of[..., 1])
        tokens = self.labels.measures["cost_tokens"]
        spent = tokens[rows, chosen].mean() / max(tokens[:, filling].mean(), 1.0)
        kept_share = f"{1 + share.low:.0%} to {1 + share.high:.0%}"
        return f"It keeps {kept_share} of what filling holds, at {spent:.0%} of its tokens."

    def _rows(self) -> list[Row]:
        """Return the tuned agent's rows of questions with short answers, as `bottleneck` reads them.

        Evidence that no configuration has counts as missing from the candidates.
        """
        labels, chosen = self.labels, self.choices[TUNED]
        absent = np.full((len(labels), len(labels.configurations)), np.nan)
        f1, full = (labels.measures.get(name, absent) for name in ("f1", "full_evidence"))
        rows = np.flatnonzero(np.isfinite(f1 + full).all(axis=1) & ~labels.long_form).tolist()
        return [
            {
                "f1": f1[row, chosen[row]],
                "full_evidence": full[row, chosen[row]],
                **({"true_k": 1} if full[row].max() == 1 else {}),
            }
            for row in rows
        ]

    def usage(self, out: str) -> str:
        """Return how the checkpoint in a folder is used."""
        if self.keeps_default:
            return "it is the shipped agent, so corag needs no --agent"
        return f"use it with: corag ask 'your question' --agent {out}"


@in_runtime
def tune(config: TuneConfig) -> Tuning:
    """Label, choose, and write the checkpoint; too few questions, or labels of other settings, are a `DataError`."""
    check_budget(config.budget)
    out = Path(config.out)
    if out.exists() and not out.is_dir():
        raise InputError(f"out is {config.out!r}, which is a file; give a folder")
    shipped = load_agent(DEFAULT_AGENT)
    labelling, number, held_out = _labelling(config, shipped)
    if not config.quiet:
        left_out = f"; {held_out} held-out ones left out" * bool(held_out)
        say(f"{number} questions, {len(labelling.configuration_list())} configurations{left_out}")
    keep = config.keep if config.metric == KEPT else 0.0
    tuning = choose(read_labels(str(label(labelling))), shipped, _target(config), config.seed, keep)
    labels, page = tuning.labels, tuning_page(tuning, config, held_out)
    card = agent.model_card(tuning.used.config, {"questions": len(labels), "versions": versions()}, page.markdown())
    table = (out / LABELS_FILE).read_bytes()
    agent.save(out, tuning.used, card, {LABELS_FILE: table, PAGE_FILE: page.html()})
    figures = {
        str(name): {measure: float(np.nanmean(values[:, column])) for measure, values in labels.measures.items()}
        for column, name in enumerate(labels.configurations)
    }
    log_run("tune", config, out, out.resolve().name, asdict(config), figures, pages={"report": page.html()})
    if not config.quiet:
        page.show()
    say(f"checkpoint and report in {config.out}; {tuning.usage(config.out)}")
    return tuning


def _labelling(config: TuneConfig, shipped: agent.ConfigurationAgent) -> tuple[LabelConfig, int, int]:
    """Return the settings of the labels, how many questions there are, and how many more are held out.

    Too few questions are a `DataError`.
    """
    labelling = LabelConfig(
        data=config.data,
        out=str(Path(config.out) / LABELS_FILE),
        splits=config.splits,
        configurations=tuple(
            dict.fromkeys([*shipped.config.configurations, *split_parts(config.configurations), parse(FILLING)])
        ),
        iterations="",
        explorations="",
        cost_weights="",
        budget=config.budget,
        budget_for="context",
        reader=config.reader,
        tokenizer=config.tokenizer,
        index=config.index,
        quiet=config.quiet,
        **candidate_settings(config),
    )
    sources = read_sources(labelling)
    folder, number = sources[0].folder, sum(len(source.queries) for source in sources)
    queries = [query for source in sources for query in questions_of(folder, source.settings.split)]
    sealed = not_to_learn(folder)
    held_out = sum(query.id in sealed for query in queries)
    if number < LEAST_QUESTIONS:
        left_out = f" ({held_out} more are held out, see docs/experiments.md)" if held_out else ""
        raise DataError(
            f"{folder.path}, {config.splits}: expected at least {LEAST_QUESTIONS} questions with answers or gold "
            f"passages that count, got {number} of {len(queries) - held_out}{left_out}; 60 to 500 are "
            "usual. Add answers or gold to queries.jsonl, or let a reader write answers: corag data references"
        )
    return labelling, number, held_out


def _target(config: TuneConfig) -> TargetConfig:
    return TargetConfig(metric=config.metric, price=config.price)


def choose(
    labels: Labels, shipped: agent.ConfigurationAgent, target: TargetConfig, seed: int = 0, keep: float = 0.0
) -> Tuning:
    """Return what tuning an agent gains, and the agent to use.

    The gain is cross-validated in five folds by document, or by question if all are about one document. Unless it
    exceeds its standard error, the agent to use is the shipped one; under a promise, `keep`, unless the tuned one keeps
    that share of what filling holds and spends less. Too few questions are a `DataError`.
    """
    labels = replace(labels.of(np.isfinite(utility(labels, target)).all(axis=1)), settings_head=False)
    if len(labels) < LEAST_QUESTIONS:
        raise DataError(
            f"expected at least {LEAST_QUESTIONS} questions with {target.metric}, got {len(labels)}; add answers or "
            "gold passages, or choose another metric"
        )
    values, rows = utility(labels, target), np.arange(len(labels))
    groups = labels.group.tolist() if len(set(labels.group)) > 1 else list(labels.ids)
    parts = divide([""] * len(labels), groups, [1.0] * FOLDS, seed)
    held = kept(labels.measures)
    keep = keep if FILLING in labels.configurations and np.isfinite(held).all() and held.any() else 0.0
    fitted = partial(promised_agent, keep=keep, seed=seed) if keep else partial(tuned_agent, shipped, target=target)
    chosen = np.zeros(len(labels), dtype=np.int64)
    for fold in np.unique(parts):
        outside = labels.of(parts == fold)
        tuned, _ = fitted(labels.of(parts != fold))
        chosen[parts == fold] = named(tuned, outside)
    choices = {DEFAULT_NAME: named(shipped, labels), TUNED: chosen, ORACLE: best_configuration(labels, values)}
    quality, tokens = utility(labels, replace(target, price=0.0)), labels.measures["cost_tokens"]
    pair = choices[TUNED], choices[DEFAULT_NAME]
    gain, better = (
        paired_difference(*(of[rows, chosen] for chosen in pair), groups=groups, seed=seed) for of in (values, quality)
    )
    metric = target.metric or QUALITY
    what = "answers" if metric in OF_ANSWERS or (metric == QUALITY and "f1" in labels.measures) else "evidence"
    ours, theirs = (float(tokens[rows, chosen].mean()) for chosen in pair)
    contest = Contest(f"the {TUNED}", f"the {DEFAULT_NAME}", better, (ours, theirs), what, metric)
    tuned, expected = fitted(labels)
    fallback = tuned.config.fallback.configuration
    gains = gain.mean > CAUTION * (gain.high - gain.low) / 2 / 1.96
    if keep:
        filled = held[:, labels.configurations.index(FILLING)].mean()
        gains = ours < theirs and held[rows, chosen].mean() >= keep * filled
    used = tuned if gains else shipped
    return Tuning(labels, used, fallback, expected, choices, gain, contest, keep, not gains)


def promised_agent(labels: Labels, keep: float, seed: int = 0) -> tuple[agent.ConfigurationAgent, FloatArray]:
    """Return an agent that names one configuration, and the least share of what filling holds that each keeps, `[C]`.

    That is the share which is exceeded in all but `DOUBT` of resamples of the documents, 1 for filling itself; the one
    with the fewest tokens is named of those for which it is at least `keep`.
    """
    groups, filling = np.unique(labels.group, return_inverse=True)[1], labels.configurations.index(FILLING)
    if not groups.any():  # all questions are about one document
        groups = np.arange(len(labels))
    held = np.zeros((groups.max() + 1, len(labels.configurations)))
    np.add.at(held, groups, kept(labels.measures))
    drawn = np.random.default_rng(seed).multinomial(len(held), np.full(len(held), 1 / len(held)), SAMPLES) @ held
    least = np.quantile(drawn / np.maximum(drawn[:, [filling]], 1e-9), DOUBT, axis=0)
    least[filling] = 1.0
    tokens = labels.measures["cost_tokens"].mean(axis=0)
    best = int(np.where(least >= keep, tokens, np.inf).argmin())
    config = agent.AgentConfig(labels.configurations, agent.Fallback(labels.configurations[best]))
    return agent.ConfigurationAgent(config), least


def tuned_agent(
    shipped: agent.ConfigurationAgent, labels: Labels, target: TargetConfig
) -> tuple[agent.ConfigurationAgent, FloatArray]:
    """Return an agent on a user's labels, and the utility that it expects of each configuration on them, `[C]`.

    The network's expectation of a configuration's utility, at the price that it has learned, is `TEMPERATURE` times its
    logit. To it is added the mean by which the user's labels exceed it, times n / (n + `OWN_WEIGHT`), and what another
    price changes, by the configuration's mean tokens. So a higher price never makes dearer configurations likelier.
    Configurations that the network does not know begin like its fallback.
    """
    learned = with_recipe_defaults(replace(target, price=None), "default", "target")
    values, tokens = utility(labels, learned), labels.measures["cost_tokens"].mean(axis=0)
    known, names = shipped.config.configurations, labels.configurations
    like = [known.index(name if name in known else shipped.config.fallback.configuration) for name in names]
    expected = _leads(TEMPERATURE * shipped.logits(labels.features(shipped.config.features))[:, like])
    beyond = (_leads(values) - expected).mean(axis=0) * len(labels) / (len(labels) + OWN_WEIGHT)
    dearer = (with_recipe_defaults(target, "default", "target").price or 0.0) - (learned.price or 0.0)
    added = beyond - dearer * tokens / REFERENCE_TOKENS
    expected = expected.mean(axis=0) + added
    # Forecasts are of other texts: with the user's own labels what is measured decides.
    best = agent.Fallback(names[int(expected.argmax())])
    config = replace(shipped.config, configurations=names, fallback=best, novelty=None, texts=0, filling=None)
    weights = {
        name: tensor for name, tensor in shipped.weights.items() if not name.startswith(("forecast.", "novelty."))
    }
    weights["choice.weight"] = weights["choice.weight"][like]
    weights["choice.bias"] = (weights["choice.bias"][like] + added / TEMPERATURE).astype(np.float32)
    return agent.ConfigurationAgent(config, weights), expected


def _leads(values: FloatArray) -> FloatArray:
    """Return values beyond their mean over the configurations, `[n, C]`: only these say which is better."""
    return np.asarray(values - values.mean(axis=1, keepdims=True))


def tuning_page(tuning: Tuning, config: TuneConfig, held_out: int = 0) -> Page:
    """Return the page of a tuning: a verdict, what each configuration gives, and what limits the result."""
    labels, names = tuning.labels, tuning.labels.configurations
    values, groups = utility(labels, _target(config)), len(set(labels.group.tolist()))
    formats = {"answer_recall": ".3f", "evidence_recall": ".3f", "cost_tokens": ".0f", "f1": ".3f", "rougeL": ".3f"}
    columns = [name for name in formats if np.isfinite(labels.measures.get(name, np.nan)).any()]
    rows = [
        [
            f"**{_short(names[column])}**" if names[column] == tuning.fallback else _short(names[column]),
            *(format(float(np.nanmean(labels.measures[name][:, column])), formats[name]) for name in columns),
            f"{values[:, column].mean():.3f}",
            f"{tuning.expected[column]:.0%}" if tuning.keep else f"{tuning.expected[column]:+.3f}",
        ]
        for column in np.lexsort((labels.measures["cost_tokens"].mean(axis=0), -tuning.expected)).tolist()
    ]
    methods = method_table(tuning.choices, labels, _target(config), base=DEFAULT_NAME, ceiling=ORACLE, marked=TUNED)
    kept_note = (
        f"Keeps: the least share of what filling holds, exceeded in {1 - DOUBT:.0%} of resamples of the documents. Of "
        f"those that keep {tuning.keep:.0%}, the one with the fewest tokens is the tuned agent's."
    )
    expected_note = (
        "Expected: utility of the tuned agent's estimate beyond the mean of all configurations: what the network "
        f"expects, and what these questions say with the weight n / (n + {OWN_WEIGHT}). The first is the fallback, for "
        "questions on which no other leads."
    )
    each = Table(
        [
            "configuration",
            *(MEASURES[name].title for name in columns),
            "utility",
            "keeps" if tuning.keep else "expected",
        ],
        rows,
        note=kept_note if tuning.keep else expected_note,
    )
    usage, statistics = tuning.usage(config.out), [tuning.contest.statistics()]
    statistics += [
        f"In utility: {tuning.gain}, p {tuning.gain.p:.3f}; the tuned agent is used if "
        + ("it keeps what is promised and spends less." if tuning.keep else "this exceeds its standard error.")
    ]
    if groups < 2 * FOLDS:
        statistics.append(f"The questions share {groups} documents, so the intervals are rough; add others.")
    compare = (
        f'Compare: corag evaluate --data {config.data} --methods "corag,corag(agent={config.out})" '
        f"--budget {config.budget} --out result.json"
    )
    note = f"{len(labels)} questions in {groups} groups that share documents, {config.budget} tokens of context."
    return Page(
        f"Tuned on {Path(config.data).resolve().name}",
        "\n".join(tuning.decision()),
        [
            Section("On held-out questions (five folds by document)", [methods]),
            Section("Each configuration, best first", [each]),
            Section("Use", [f"{usage[0].upper()}{usage[1:]}", *([] if tuning.keeps_default else [compare])]),
            Section("Statistics", statistics),
        ],
        note + (f" {held_out} held-out questions were left out." if held_out else ""),
    )


def _short(configuration: Configuration) -> str:
    """Return a configuration without the settings of its search."""
    kept = {name: value for name, value in configuration.settings.items() if name != "search"}
    return Configuration(configuration.name, kept)
