"""A trained agent beside baselines and the oracle, on questions that it has not seen: a section of its card and page.

Every method learns from the same questions and names one measured configuration for each test question; predicted
settings that were not measured count as the nearest ones that were. Letters: `n` questions, `C` configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import agent
from corag.cli.page import Page, Section, Table
from corag.errors import InputError
from experiments.agents.targets import TargetConfig, best_configuration, best_single, utility
from experiments.labels.table import Labels
from experiments.report.difference import Difference, paired_difference

NEIGHBOURS, STRENGTHS = (5, 10, 20, 40, 80, 160), (0.001, 0.01, 0.1, 1.0)
"""Of the baselines: numbers of nearest neighbours, and inverse penalties of logistic regression."""
BASE, AGENT, CEILING = "best single configuration", "this agent", "oracle"

Choices = NDArray[np.int64]


def departing(trained: agent.ConfigurationAgent, min_lead: float) -> agent.ConfigurationAgent:
    """Return an agent that departs from the best single configuration by `min_lead`."""
    return agent.ConfigurationAgent(replace(trained.config, min_lead=min_lead), trained.weights)


def gain_over_single(trained: agent.ConfigurationAgent, labels: Labels, target: TargetConfig) -> Difference:
    """Return the utility that an agent gains over the best single configuration."""
    values, rows = utility(labels, target), np.arange(len(labels))
    ours, single = (values[rows, named(of, labels)] for of in (trained, departing(trained, 1.0)))
    return paired_difference(ours, single, groups=labels.group.tolist())


def comparison(
    trained: agent.ConfigurationAgent, train: Labels, val: Labels, test: Labels, target: TargetConfig
) -> Page:
    """Return the page that compares an agent with baselines and the oracle on the test questions.

    Baselines learn from `train` and choose their settings by `val`, with the features of the agent.
    """
    gains = utility(train, target)
    best = best_configuration(train, gains)
    # A single class leaves nothing to regress on.
    regression = [make_pipeline(StandardScaler(), LogisticRegression(C=c)) for c in STRENGTHS]
    regression = regression if len(set(best)) > 1 else [DummyClassifier()]
    counts = [count for count in NEIGHBOURS if count <= len(train)] or [len(train)]
    neighbours = [KNeighborsRegressor(count, metric="cosine") for count in counts]
    given = (train, val, test, (target, trained.config.features))
    choices = {
        "majority class": _learned([DummyClassifier()], best, *given),
        BASE: named(departing(trained, 1.0), test),
        "logistic regression": _learned(regression, best, *given),
        "k-nearest neighbours": _learned(neighbours, gains, *given),
        AGENT: named(trained, test),
        CEILING: best_configuration(test, utility(test, target)),
    }
    values, tokens, rows = utility(test, target), test.measures["cost_tokens"], np.arange(len(test))
    groups, lines = test.group.tolist(), []
    gain = {
        name: paired_difference(values[rows, chosen], values[rows, choices[BASE]], groups=groups)
        for name, chosen in choices.items()
    }
    for name, chosen in choices.items():
        shown = ["-", "-"] if name == BASE else [f"{gain[name]}", f"{gain[name].p:.3f}"]
        title = f"**{name}**" if name == AGENT else name
        lines.append([title, f"{values[rows, chosen].mean():.4f}", *shown, f"{tokens[rows, chosen].mean():.1f}"])
    note = (
        f"Utility: {target.metric} less {target.price:g} for 256 tokens. Gain over the {BASE}, 95% intervals over "
        "resampled documents. The oracle picks for each question with hindsight and so profits from noise."
    )
    table, lead = Table(["method", "utility", "gain", "p", "tokens"], lines, note=note), gain[AGENT]
    verdict = "is not significantly different from"
    if lead.is_certain:
        verdict = "is ahead of" if lead.mean > 0 else "falls behind"
    return Page(
        "The agent and its baselines",
        f"The agent {verdict} the best single configuration: {lead}, {len(test)} questions that it has not seen.",
        [Section("Each method on questions that nothing was learned from", [table])],
    )


def left_out_table(
    labels: Labels, target: TargetConfig, fit: Callable[[Labels, str], agent.ConfigurationAgent]
) -> Table:
    """Return a line for each kind: what an agent reaches on it that `fit` trained on the others, with the kind's name.

    Beside it stands the configuration that is best for the others.
    """
    values, lines, means = utility(labels, target), [], []
    kinds = list(dict.fromkeys(labels.kind.tolist()))
    of_agent, of_single = np.empty(len(labels)), np.empty(len(labels))
    for kind in kinds:
        rows, others = np.flatnonzero(labels.kind == kind), np.flatnonzero(labels.kind != kind)
        single = best_single(labels.of(others), values[others])
        try:
            chosen = named(fit(labels.of(others), kind), labels.of(rows))
        except InputError:  # one class is best for all of the others: there is nothing to learn
            chosen = np.full(len(rows), single)
        of_agent[rows], of_single[rows] = values[rows, chosen], values[rows, single]
        means.append((of_single[rows].mean(), of_agent[rows].mean(), values[rows].max(axis=1).mean()))
        gain = paired_difference(of_agent[rows], of_single[rows], groups=labels.group[rows].tolist())
        lines.append([kind, str(len(rows)), *(f"{mean:.4f}" for mean in means[-1]), f"{gain}"])
    gain = paired_difference(of_agent, of_single, groups=labels.group.tolist())
    lines.append(["**all**", str(len(labels)), *(f"{mean:.4f}" for mean in np.mean(means, axis=0)), f"{gain}"])
    headings = ["kind left out", "questions", BASE, AGENT, CEILING, "gain of the agent"]
    note = "Utility; in the last line the mean over kinds, and the gain over all questions. 95% intervals by document."
    return Table(headings, lines, note=note)


def named(trained: agent.ConfigurationAgent, labels: Labels) -> Choices:
    """Return the measured configuration that stands for each prediction of an agent, `[n]`."""
    classes, config = labels.classes(), trained.config
    predictions = trained.predict(labels.features(config.features))
    assert isinstance(predictions, list)
    chosen = [classes.names.index(prediction.configuration) for prediction in predictions]
    if classes.settings is None or config.ranges is None:
        return np.array(chosen, dtype=np.int64)
    settings = np.array([[one.iterations, one.exploration, one.cost_weight] for one in predictions], dtype=np.float64)
    return classes.nearest(chosen, settings, config.ranges)


def _learned(
    models: Sequence[Any], targets: Any, train: Labels, val: Labels, test: Labels, config: tuple[Any, Any]
) -> Choices:
    """Return the choices of the model, fitted to targets, of highest mean utility on the validation questions.

    Targets are the best configuration of each training question, `[n]`, or utilities, `[n, C]`, of which a model's
    largest is its choice. Without validation questions the first model chooses.
    """
    target, recipe = config

    def choose(model: Any, labels: Labels) -> Choices:
        predicted = np.asarray(model.predict(labels.features(recipe)))
        return (predicted if predicted.ndim == 1 else predicted.argmax(axis=1)).astype(np.int64)

    features = train.features(recipe)
    fitted = [model.fit(features, targets) for model in (models if len(val) else models[:1])]
    if not len(val):
        return choose(fitted[0], test)
    gains, rows = utility(val, target), np.arange(len(val))
    return choose(max(fitted, key=lambda model: float(gains[rows, choose(model, val)].mean())), test)
