"""A trained agent beside baselines and the oracle, on questions that it has not seen: a section of its card and page.

Every method learns from the same questions and names one measured configuration for each test question; predicted
settings that were not measured count as the nearest ones that were. Letters: `n` questions, `C` configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

import agent
from corag.types import FloatArray
from experiments.agents.recipes import with_recipe_defaults
from experiments.agents.targets import TargetConfig, best_configuration, best_single, taught, utility
from experiments.labels.table import Labels
from experiments.report.difference import paired_difference
from experiments.report.page import Page, Section, Table

NEIGHBOURS = (5, 10, 20, 40, 80, 160)
BASE, AGENT, CEILING = "best single configuration", "this agent", "oracle"

Choices = NDArray[np.int64]


def comparison(
    trained: agent.ConfigurationAgent, train: Labels, val: Labels | None, test: Labels, target: TargetConfig
) -> Page:
    """Return the page that compares an agent with baselines and the oracle on the test questions.

    Baselines learn from `train` and choose their settings by `val`, with the features of the agent.
    """
    values, rows = utility(test, target), np.arange(len(test))
    known = np.concatenate([utility(part, target) for part in (train, val) if part is not None])
    choices: dict[str, Choices] = {
        BASE: np.full(len(test), best_single(train, known)),
        "k-nearest neighbours": _nearest_neighbours(train, val, test, target, trained.config.features),
        AGENT: named(trained, test),
        CEILING: best_configuration(test, values),
    }
    lead = paired_difference(values[rows, choices[AGENT]], values[rows, choices[BASE]], groups=test.group.tolist())
    verdict = "is not significantly different from"
    if lead.is_certain:
        verdict = "is ahead of" if lead.mean > 0 else "falls behind"
    table = method_table(choices, test, target, base=BASE, ceiling=CEILING, marked=AGENT)
    return Page(
        "The agent and its baselines",
        f"The agent {verdict} the best single configuration: {lead}, {len(test)} questions that it has not seen.",
        [Section("Each method on questions that nothing was learned from", [table])],
    )


def method_table(
    choices: Mapping[str, Choices], labels: Labels, target: TargetConfig, *, base: str, ceiling: str, marked: str
) -> Table:
    """Return a line for each method, given its configuration for each question, `[n]`: what it reaches beside others.

    The method `base` closes none of the gap, `ceiling` all of it; `marked` is in bold.
    """
    values, rows = utility(labels, target), np.arange(len(labels))
    of_base, of_ceiling = values[rows, choices[base]], values[rows, choices[ceiling]]
    lines = []
    for name, chosen in choices.items():
        leads = np.stack([values[rows, chosen] - of_base, of_ceiling - of_base], axis=1)
        gap = paired_difference(leads, groups=labels.group.tolist(), statistic=_share)
        shown, p = f"{gap.mean:+.2f} ({gap.low:+.2f} to {gap.high:+.2f})", f"{gap.p:.3f}"
        if name in (base, ceiling):
            shown, p = f"{gap.mean:+.2f}", "-"
        tokens = labels.measures["cost_tokens"][rows, chosen].mean()
        title = f"**{name}**" if name == marked else name
        lines.append([title, f"{values[rows, chosen].mean():.4f}", shown, p, f"{tokens:.1f}"])
    target = with_recipe_defaults(target, "default", "target")
    note = (
        f"Utility: {target.metric} less {target.price or 0.0:g} for 256 tokens. Gap closed: 0 is the {base}, 1 the "
        "oracle, which picks for each question with hindsight and so profits from noise; 95% intervals over resampled "
        "documents."
    )
    return Table(["method", "utility", "gap closed", "p", "tokens"], lines, note=note)


def _share(means: FloatArray) -> FloatArray:
    """Return lead over gap, 0 if there is no gap."""
    lead, gap = means[..., 0], means[..., 1]
    return np.divide(lead, gap, out=np.zeros_like(lead), where=gap > 0)


def named(trained: agent.ConfigurationAgent, labels: Labels) -> Choices:
    """Return the measured configuration that stands for each prediction of an agent, `[n]`."""
    classes, config = labels.classes(), trained.config
    predictions = trained.predict(labels.features(config.features), config.configurations)
    assert isinstance(predictions, list)
    chosen = [classes.names.index(prediction.configuration) for prediction in predictions]
    if classes.settings is None or config.ranges is None:
        return np.array(chosen, dtype=np.int64)
    settings = [[each.iterations, each.exploration, each.cost_weight] for each in predictions]
    return classes.nearest(chosen, np.array(settings, dtype=np.float64), config.ranges)


def _nearest_neighbours(
    train: Labels, val: Labels | None, test: Labels, target: TargetConfig, parts: Sequence[str]
) -> Choices:
    """Return the configuration of highest mean utility on the nearest training questions, by cosine of the features.

    Their number is the one of highest mean utility on the validation questions.
    """
    values = taught(train, target)

    def choose(labels: Labels, count: int) -> Choices:
        near = np.argsort(-_unit(labels.features(parts)) @ _unit(train.features(parts)).T, axis=1, kind="stable")
        return np.asarray(values[near[:, :count]].mean(axis=1).argmax(axis=1), dtype=np.int64)

    counts = [count for count in NEIGHBOURS if count <= len(train)] or [len(train)]
    if val is None:
        return choose(test, counts[0])
    gains, rows = utility(val, target), np.arange(len(val))
    return choose(test, max(counts, key=lambda count: float(gains[rows, choose(val, count)].mean())))


def _unit(features: NDArray[np.float32]) -> FloatArray:
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.maximum(lengths, 1e-12), dtype=np.float64)
