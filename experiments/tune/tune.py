"""`corag tune`: from a user's questions to a checkpoint that names what serves them best, and a page about it.

Letters: `n` questions, `C` configurations.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import agent
from corag.checks import check_budget
from corag.cli.console import say
from corag.errors import DataError, InputError
from corag.models.runtime import in_runtime
from corag.models.trained import shipped_checkpoint
from corag.selectors.corag.agents import SHIPPED_AGENT
from corag.selectors.price import REFERENCE_TOKENS
from corag.types import FloatArray
from experiments.agents.targets import best_configuration, quality
from experiments.data.config import candidate_settings
from experiments.data.splits import divide, questions_of
from experiments.labels.config import LabelConfig
from experiments.labels.examples import read_examples
from experiments.labels.label import label
from experiments.labels.table import Labels, read_labels
from experiments.protocol.held_out import is_held_out
from experiments.report.difference import Difference, paired_difference
from experiments.report.drawing import interval_plot
from experiments.report.page import Figure, Page, Section, Table
from experiments.run.journal import versions
from experiments.run.track import log_run
from experiments.tune.config import DEFAULT, LEAST_QUESTIONS, TuneConfig
from experiments.tune.shrinkage import Estimate, estimate, prior_for

SECONDS = 0.25
"""Of one core for a question under one configuration: 20 passages of 150 tokens, and a context read."""
FOLDS, EPOCHS = 5, 30
FEATURES = ("query", "curve")
LEAST_FOR_A_NETWORK = 60
"""Different questions with which a network is tried."""
LEAST_GAIN = 1e-6
"""A smaller gain is a rounding error."""
POWER = 1.96 + 0.84
"""Standard errors that a gain must be for four runs in five to see it at p < .05 (two-sided)."""
LABELS_FILE, PAGE_FILE, WORK_DIR = "labels.parquet", "report.html", "work"


@dataclass(frozen=True)
class Tuning:
    """What a tuning found.

    Attributes:
        configuration: The best one for all questions.
        estimates: Gain in utility of each configuration over the default.
        gain: Gain over the default on questions that took no part in the choice, by cross-validation over documents.
        network_gain: Gain of a network over the single choice, likewise; None where none was tried.
        uses_network: Whether the checkpoint has it.
        means: Mean quality and tokens of each configuration.
    """

    configuration: str
    estimates: dict[str, Estimate]
    gain: Difference
    network_gain: Difference | None
    uses_network: bool
    means: dict[str, dict[str, float]]

    @property
    def keeps_default(self) -> bool:
        """Whether the checkpoint does what `corag` does without one."""
        return self.configuration == DEFAULT and not self.uses_network

    @property
    def verdict(self) -> str:
        """Whether to use it, in a sentence."""
        if self.keeps_default:
            return "No, keep the default: no other configuration is expected to serve these questions better."
        if self.gain.low > 0:
            return f"Yes, use it: questions that took no part gained {self.gain}."
        if self.gain.mean > 0:
            return f"Probably: questions that took no part gained {self.gain}, which may be chance; more would tell."
        return f"No, keep the default: questions that took no part gained nothing, {self.gain}."

    def usage(self, out: str) -> str:
        """Return how the checkpoint in a folder is used."""
        command = f"corag ask 'your question' --agent {out}"
        return "corag does the same without it" if self.keeps_default else f"use it with: {command}"


@in_runtime
def tune(config: TuneConfig) -> Tuning:
    """Label, choose, and write the checkpoint."""
    check_budget(config.budget)
    out = Path(config.out)
    if out.exists() and not out.is_dir():
        raise InputError(f"out is {config.out!r}, which is a file; give a folder")
    labelling, held_out = _labelling(config)
    if not config.quiet:
        number, configurations = len(read_examples(labelling).examples), len(config.configuration_list())
        minutes = max(1, round(SECONDS * number * configurations / 60))
        say(
            f"{number} questions, {configurations} configurations: about {minutes} minute{'s' * (minutes > 1)} on one "
            f"core" + (f"; {held_out} held-out ones left out" * bool(held_out))
        )
    labels = read_labels(str(label(labelling)))
    tuning, trained = choose(labels, config)
    page = tuning_page(tuning, labels, config, held_out)
    card = agent.model_card(trained.config, {"questions": len(labels), "versions": versions()}, page.markdown())
    table = (out / LABELS_FILE).read_bytes()
    shutil.rmtree(out / WORK_DIR, ignore_errors=True)
    agent.save(out, trained, card, {LABELS_FILE: table, PAGE_FILE: page.html()})
    log_run("tune", config, out, out.resolve().name, asdict(config), tuning.means, pages={"report": page.html()})
    if not config.quiet:
        page.show()
    return tuning


def _labelling(config: TuneConfig) -> tuple[LabelConfig, int]:
    """Return the settings of the labels, and how many questions are held out; too few others are a `DataError`."""
    labelling = LabelConfig(
        data=config.data,
        out=str(Path(config.out) / LABELS_FILE),
        splits=config.splits,
        configurations=tuple(config.configuration_list()),
        iterations="",
        explorations="",
        cost_weights="",
        budget=config.budget,
        budget_for="context",
        reader=config.reader,
        index=config.index,
        quiet=config.quiet,
        **candidate_settings(config),
    )
    examples = read_examples(labelling)
    folder = examples.folders[0]
    queries = [query for source in examples.sources for query in questions_of(folder, source.split)]
    held_out = sum(is_held_out(folder, query) for query in queries)
    if len(examples.examples) < LEAST_QUESTIONS:
        left_out = f" ({held_out} more are held out, see docs/experiments.md)" if held_out else ""
        raise DataError(
            f"{folder.path}, {config.splits}: expected at least {LEAST_QUESTIONS} questions with answers or gold "
            f"passages that count, got {len(examples.examples)} of {len(queries) - held_out}{left_out}; 60 to 500 are "
            "usual. Add answers or gold to queries.jsonl, or let a reader write answers: corag data references"
        )
    return labelling, held_out


def choose(labels: Labels, config: TuneConfig) -> tuple[Tuning, agent.ConfigurationAgent]:
    """Return what serves the questions best, and the agent that names it.

    The single best configuration is chosen by gains shrunk towards the priors of the shipped agent; a network is
    trained only if cross-validation says that it gains.
    """
    values = quality(labels, config.evidence_weight, config.answer)
    known = np.isfinite(values).all(axis=1)
    labels, values = labels.of(known), values[known]
    utility = values - config.price * labels.measures["cost_tokens"] / REFERENCE_TOKENS
    groups, names = labels.group.tolist(), labels.configurations
    estimates = _estimates(utility, labels)
    chosen = _best(estimates)
    parts = divide([""] * len(labels), groups, [1.0] * FOLDS, config.seed)
    single = np.zeros(len(labels), dtype=np.int64)
    by_network = single.copy()
    tries_network = len(np.unique(labels.query_vectors, axis=0)) >= LEAST_FOR_A_NETWORK
    for fold in np.unique(parts):
        inside, outside = np.flatnonzero(parts != fold), np.flatnonzero(parts == fold)
        learned = labels.of(inside)
        name = _best(_estimates(utility[inside], learned))
        single[outside] = names.index(name)
        if tries_network:
            trained = _network(learned, utility[inside], name, config, f"fold-{fold}")
            predictions = trained.predict(labels.of(outside).features(FEATURES))
            assert isinstance(predictions, list)
            by_network[outside] = [names.index(one.configuration) for one in predictions]

    def gain(ours: NDArray[np.int64], theirs: NDArray[np.int64] | int) -> Difference:
        rows = np.arange(len(labels))
        return paired_difference(utility[rows, ours], utility[rows, theirs], groups=groups, seed=config.seed)

    network_gain = gain(by_network, single) if tries_network else None
    uses_network = network_gain is not None and network_gain.low > 0
    trained = _network(labels, utility, chosen, config, "all") if uses_network else _constant(chosen)
    means = {
        name: {"quality": float(values[:, column].mean())}
        | {one: float(np.nanmean(measured[:, column])) for one, measured in labels.measures.items()}
        for column, name in enumerate(names)
    }
    overall = gain(by_network if uses_network else single, 0)
    return Tuning(chosen, estimates, overall, network_gain, uses_network, means), trained


def _estimates(utility: FloatArray, labels: Labels) -> dict[str, Estimate]:
    """Return what is known about the gain of each configuration over the first, the default."""
    shipped = shipped_checkpoint(SHIPPED_AGENT)
    priors = {} if shipped is None else agent.load(shipped).config.priors
    groups, (default, *others) = labels.group.tolist(), labels.configurations
    gains = (utility[:, 1:] - utility[:, :1]).T
    estimates = {
        name: estimate(gain, groups, prior_for(name, priors)) for name, gain in zip(others, gains, strict=True)
    }
    return {default: Estimate(0.0, 0.0, 0.0, 1.0), **estimates}


def _best(estimates: dict[str, Estimate]) -> str:
    """Return the configuration of the highest gain that can be counted on; the default, the first, unless one gains."""
    best = max(estimates, key=lambda name: estimates[name].cautious)
    return best if estimates[best].cautious > LEAST_GAIN else next(iter(estimates))


def _constant(configuration: str) -> agent.ConfigurationAgent:
    return agent.ConfigurationAgent(agent.AgentConfig((configuration,), agent.Fallback(configuration)))


def _network(
    labels: Labels, utility: FloatArray, chosen: str, config: TuneConfig, name: str
) -> agent.ConfigurationAgent:
    """Return an agent over whole configurations, trained on the utilities of questions."""
    best = best_configuration(labels, utility)
    if len(np.unique(best)) < 2:
        return _constant(chosen)
    table = agent.TrainingTable(
        features=labels.features(FEATURES),
        label=best,
        weight=np.ones(len(labels), dtype=np.float32),
        ids=labels.ids,
        quality=utility.astype(np.float32),
    )
    agent_config = agent.AgentConfig(
        configurations=labels.configurations,
        fallback=agent.Fallback(chosen),
        feature_dim=table.features.shape[1],
        embedder=labels.embedder,
        features=FEATURES,
        hidden=(64,),
        map_dim=32,
    )
    training = agent.TrainConfig(
        epochs=EPOCHS, standardize=True, temperature=0.1, contrastive_weight=0.0, regret_weight=1.0, seed=config.seed,
        device="cpu",
    )  # fmt: skip
    return agent.fit(table, None, agent_config, training, Path(config.out) / WORK_DIR / name).agent


def tuning_page(tuning: Tuning, labels: Labels, config: TuneConfig, held_out: int = 0) -> Page:
    """Return the page of a tuning: a verdict, what each configuration gains, and what more questions would tell."""
    names = sorted(tuning.estimates, key=lambda name: -tuning.estimates[name].cautious)
    estimates = [tuning.estimates[name] for name in names]
    formats = {"quality": ".3f", "f1": ".3f", "rougeL": ".3f", "evidence_recall": ".3f", "cost_tokens": ".0f"}
    columns = [name for name in formats if any(name in of_one for of_one in tuning.means.values())]
    rows = [
        [
            f"**{name}**" if name == tuning.configuration else name,
            *(format(tuning.means[name][column], formats[column]) for column in columns),
            f"{one.own:+.3f}", f"{one.posterior:+.3f}", f"{one.weight:.0%}",
        ]
        for name, one in zip(names, estimates, strict=True)
    ]  # fmt: skip
    plot = interval_plot(
        names,
        [one.posterior for one in estimates],
        [(one.posterior - 1.96 * one.spread, one.posterior + 1.96 * one.spread) for one in estimates],
        f"gain over {DEFAULT}",
        marked=names.index(tuning.configuration),
    )
    answer = {"f1": "F1", "rougeL": "ROUGE-L"}[config.answer]
    table = Table(
        ["configuration", *(name.replace("_", " ") for name in columns), "own gain", "shrunken gain", "own share"],
        rows,
        note=f"Quality: {answer} of the answer by {config.reader} and evidence recall, with weights "
        f"{1 - config.evidence_weight:g} and {config.evidence_weight:g}; 256 tokens cost {config.price:g}. Own gain: "
        f"mean difference from {DEFAULT} on these questions. Shrunken gain: the same, weighed against other kinds of "
        "questions; the own share is the weight of yours. Nothing is chosen whose shrunken gain is below its standard "
        "deviation.",
    )
    usage = tuning.usage(config.out)
    compare = (
        f'Compare: corag evaluate --data {config.data} --methods "corag,corag(agent={config.out})" '
        f"--budget {config.budget} --out result.json"
    )
    num_groups = len(set(labels.group.tolist()))
    note = f"{len(labels)} questions in {num_groups} groups that share documents, {config.budget} tokens of context."
    return Page(
        f"Tuned on {Path(config.data).resolve().name}",
        f"**{tuning.verdict}** Chosen: {tuning.configuration}.",
        [
            Section("Each configuration, best first", [table, Figure(plot, "What each configuration gains")]),
            Section("What limits this result", _limits(tuning, len(labels), num_groups)),
            Section("Use", [f"{usage[0].upper()}{usage[1:]}", compare]),
        ],
        note + (f" {held_out} held-out questions were left out." if held_out else ""),
    )


def _limits(tuning: Tuning, num_questions: int, num_groups: int) -> list[str]:
    """Return what the gain says, and what more questions would change."""
    spread = (tuning.gain.high - tuning.gain.low) / 2 / 1.96
    detectable = f"Smallest detectable gain (80% power): {POWER * spread:.3f}." if spread else ""
    lines = [
        f"On questions that took no part in the choice (cross-validation by document): {tuning.gain}. {detectable}"
    ]
    if num_questions < LEAST_FOR_A_NETWORK:
        lines.append(
            f"With at least {LEAST_FOR_A_NETWORK} questions instead of {num_questions}, better 200, gains half as "
            "large can be seen, and a network that chooses for each question is tried."
        )
    if num_groups < 2 * FOLDS:
        lines.append(
            f"They share {num_groups} documents, so the interval is rough; add questions about other documents."
        )
    if tuning.network_gain is not None:
        word = "gains" if tuning.uses_network else "gains nothing certain"
        lines.append(f"A network that chooses for each question {word} over one choice for all: {tuning.network_gain}.")
    return lines
