"""A trained agent beside what it has to beat, on questions that it has not seen: a section of its card and page.

Every method learns from the same questions and names one measured configuration for each test question; predicted
settings that were not measured count as the nearest ones that were. Letters: `n` questions, `C` configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import agent
from agent.training.data import FeatureScaling
from corag.optional import require
from corag.types import FloatArray
from experiments.agents.targets import TargetConfig, best_single, cheapest, learnt_targets, shrunk, utility
from experiments.labels.table import Labels
from experiments.report.difference import paired_difference
from experiments.report.page import Page, Section, Table

NEIGHBOURS = (5, 10, 20, 40, 80, 160)
REGULARISATIONS = (0.1, 1.0, 10.0, 100.0)
BASE, AGENT, CEILING = "best single configuration", "this agent", "oracle"

Choices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Division:
    """The questions that methods learn from, choose their settings by, and are tested on."""

    train: Labels
    val: Labels | None
    test: Labels

    @property
    def known(self) -> list[Labels]:
        """All questions that are not tested."""
        return [self.train] if self.val is None else [self.train, self.val]


def comparison(
    trained: agent.ConfigurationAgent, division: Division, target: TargetConfig, recipe: Sequence[str]
) -> Page:
    """Return the page that compares an agent with the baselines and the oracle on the test questions."""
    test = division.test
    values, rows = utility(test, target), np.arange(len(test))
    choices = _choices(trained, division, target, recipe)
    base, ceiling = values[rows, choices[BASE]], values[rows, choices[CEILING]]
    lines = []
    for name, chosen in choices.items():
        leads = np.stack([values[rows, chosen] - base, ceiling - base], axis=1)
        gap = paired_difference(leads, groups=test.group.tolist(), statistic=_share)
        shown = name in (BASE, CEILING)
        lines.append(
            [
                f"**{name}**" if name == AGENT else name,
                f"{values[rows, chosen].mean():.4f}",
                f"{gap.mean:+.2f}" if shown else f"{gap.mean:+.2f} ({gap.low:+.2f} to {gap.high:+.2f})",
                "-" if shown else f"{gap.p:.3f}",
                f"{test.measures['cost_tokens'][rows, chosen].mean():.1f}",
            ]
        )
    ours = paired_difference(values[rows, choices[AGENT]], base, groups=test.group.tolist())
    judged = "is not told apart from"
    if ours.is_certain:
        judged = "is ahead of" if ours.mean > 0 else "falls behind"
    lead = f"The agent {judged} the best single configuration: {ours}, {len(test)} questions that it has not seen."
    labels = test.classes().label
    return Page(
        "The agent beside what it has to beat",
        lead,
        [
            Section(
                "Each method on questions that nothing was learned from",
                [
                    Table(
                        ["method", "utility", "gap closed", "p", "tokens"],
                        lines,
                        note=f"Utility: {'+'.join(target.metrics)} less {target.cost_weight:g} for 256 tokens. Gap "
                        "closed: 0 is the best single configuration, 1 the oracle, which picks for each question with "
                        "hindsight and so profits from noise; 95% intervals over resampled documents.",
                    )
                ],
            ),
            Section("Predicted (columns) where another was best (rows)", [_confusion(labels, choices, test)]),
        ],
    )


def _share(means: FloatArray) -> FloatArray:
    """Return lead over gap, 0 where there is no gap."""
    lead, gap = means[..., 0], means[..., 1]
    return np.divide(lead, gap, out=np.zeros_like(lead), where=gap > 0)


def _choices(
    trained: agent.ConfigurationAgent, division: Division, target: TargetConfig, recipe: Sequence[str]
) -> dict[str, Choices]:
    """Return the configuration that each method names for each test question, `[n]`."""
    train, test = division.train, division.test
    table = learnt_targets(train, target, recipe)
    known = np.concatenate([utility(part, target) for part in division.known])
    single = best_single(train, known)
    counts = np.bincount(table.label[table.weight > 0], minlength=len(train.classes().names))
    # The best configuration of each class stands for it.
    label, means = train.classes().label, known.mean(axis=0)
    of_class = np.array([max(np.flatnonzero(label == one), key=lambda column: means[column]) for one in set(label)])
    values = utility(test, target)
    return {
        BASE: np.full(len(test), single),
        "majority class": np.full(len(test), of_class[counts.argmax()]),
        "k-nearest neighbours": _nearest_neighbours(division, target, recipe),
        "logistic regression": of_class[_logistic(division, table, target, recipe)],
        AGENT: named(trained, test, recipe),
        CEILING: cheapest(test, values == values.max(axis=1, keepdims=True)),
    }


def named(trained: agent.ConfigurationAgent, labels: Labels, recipe: Sequence[str]) -> Choices:
    """Return the measured configuration that stands for each prediction of an agent, `[n]`."""
    classes, config = labels.classes(), trained.config
    predictions = trained.predict(labels.features(recipe), config.configurations)
    assert isinstance(predictions, list)
    chosen = [config.configurations.index(one.configuration) for one in predictions]
    if classes.grid is None or config.ranges is None:
        return np.array(chosen, dtype=np.int64)
    settings = [[one.iterations, one.exploration, one.cost_weight] for one in predictions]
    return classes.grid.nearest(chosen, np.array(settings, dtype=np.float64), config.ranges)


def _nearest_neighbours(division: Division, target: TargetConfig, recipe: Sequence[str]) -> Choices:
    """The configuration of highest mean utility on the nearest known questions, by cosine of the features."""
    train = division.train
    values = shrunk(utility(train, target), train.data, target.shrink)

    def choose(labels: Labels, count: int) -> Choices:
        near = np.argsort(-_unit(labels.features(recipe)) @ _unit(train.features(recipe)).T, axis=1, kind="stable")
        return np.asarray(values[near[:, :count]].mean(axis=1).argmax(axis=1), dtype=np.int64)

    counts = [count for count in NEIGHBOURS if count <= len(train)] or [len(train)]
    return choose(division.test, _best(division.val, target, dict.fromkeys(counts, choose)))


def _logistic(
    division: Division, table: agent.TrainingTable, target: TargetConfig, recipe: Sequence[str]
) -> NDArray[np.int64]:
    """The most probable class of each test question by logistic regression on the features, `[n]`."""
    linear_model = require("sklearn.linear_model", "clustering")
    counts = table.weight > 0
    scaling = FeatureScaling.of(table.features)

    def fitted(strength: float) -> Any:
        model = linear_model.LogisticRegression(C=strength, max_iter=300)
        return model.fit(scaling(table.features)[counts], table.label[counts], sample_weight=table.weight[counts])

    if len(np.unique(table.label[counts])) < 2:
        return np.full(len(division.test), int(table.label[counts][0]))
    best = REGULARISATIONS[1]
    if division.val is not None:
        val = learnt_targets(division.val, target, recipe)
        features = scaling(val.features)
        best = max(REGULARISATIONS, key=lambda one: fitted(one).score(features, val.label, val.weight + 1e-9))
    return np.asarray(fitted(best).predict(scaling(division.test.features(recipe))), dtype=np.int64)


def _best(val: Labels | None, target: TargetConfig, choosers: Mapping[int, Callable[[Labels, int], Choices]]) -> int:
    """Return the setting whose choices have the highest mean utility on the validation questions."""
    if val is None or len(choosers) == 1:
        return next(iter(choosers))
    values, rows = utility(val, target), np.arange(len(val))
    return max(choosers, key=lambda setting: float(values[rows, choosers[setting](val, setting)].mean()))


def _confusion(label: NDArray[np.int64], choices: Mapping[str, Choices], test: Labels) -> Table:
    names = test.classes().names
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(counts, (label[choices[CEILING]], label[choices[AGENT]]), 1)
    numbers = [str(number) for number in range(1, len(names) + 1)]
    lines = [[f"{number} {name}", *map(str, row)] for number, name, row in zip(numbers, names, counts, strict=True)]
    return Table(["best", *numbers], lines)


def _unit(features: NDArray[np.float32]) -> FloatArray:
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.maximum(lengths, 1e-12), dtype=np.float64)
