"""What the agent should have said: the best configuration of each question, with ties and noise in mind.

Letters: `n` questions, `C` configurations, `R` classes of the agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

import agent
from corag.errors import InputError
from corag.types import FloatArray
from experiments.agents.recipes import RECIPES, settled
from experiments.labels.table import PRICED_TOKENS, Labels

Weighting = Literal["margin", "rule", "equal"]
ClassValue = Literal["best", "mean"]


@dataclass(frozen=True)
class TargetConfig:
    """What makes one configuration better than another.

    Attributes:
        metric: Measure of the labels; several joined by `+`, such as `f1+full_evidence`, are averaged. By default as
            the recipe has it: f1, in the paper's rougeL.
        cost_weight: lambda: what 256 tokens of a selection cost, in units of the metric.
        noise: Configurations whose utility is within this of the best count as equally good: the cheapest of them (in
            tokens, then orders scored) gives the class, their mean the settings. By default 0.02, in the paper's
            recipe 0.
        weighting: Weight of a question for the label: the lead of the best class over the next (margin), or 1 if it
            leads by more than `noise`, else 0 (equal). Or only questions whose best class leads the next by more than
            the share `margin` are learnt from, each alike (rule, which is the paper's; by default margin).
        margin: Share of the next class's utility, 0.1 for 10%; see `weighting`.
        class_value: Utility of a class on a question where the agent predicts settings: the best over them, or their
            mean, which is less noisy.
        shrink: Share, from 0 to 1, by which each question's utilities are shrunk to the mean of its data folder,
            because single answers are noisy labels. It changes the targets, not how predictions are evaluated.
    """

    metric: str | None = None
    cost_weight: float = 0.0
    noise: float | None = None
    weighting: Weighting | None = None
    margin: float = 0.1
    class_value: ClassValue = "best"
    shrink: float = 0.0

    def __post_init__(self) -> None:
        if self.metric is not None and not all(self.metrics):
            raise InputError(f"metric is {self.metric!r}; give a measure of the labels, or several joined by +")
        for name in ("cost_weight", "noise"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < np.inf:
                raise InputError(f"expected {name} to be a finite number of at least 0, got {value}")
        if not 0 <= self.shrink <= 1:
            raise InputError(f"shrink must be between 0 and 1, got {self.shrink}")
        if not np.isfinite(self.margin):
            raise InputError(f"margin must be a finite number, got {self.margin}")
        for name, choices in (("weighting", Weighting), ("class_value", ClassValue)):
            if getattr(self, name) not in (None, *get_args(choices)):
                raise InputError(f"{name} must be one of {', '.join(get_args(choices))}; got {getattr(self, name)!r}")

    @property
    def metrics(self) -> list[str]:
        """The measures that `metric` names."""
        metric: str = self.metric or RECIPES["default"]["target"]["metric"]
        return [name.strip() for name in metric.split("+")]


PAPER = settled(TargetConfig(), "paper", "target")
"""The paper's targets (5.2.2): best ROUGE-L; questions whose best reranker is better than the next by more than 10%.

The paper does not say 10% of what; here it is of the next one's ROUGE-L.
"""

PRIOR = 20
"""Questions' worth of weight that the mean over all data folders has in the mean of one."""

EVERY_QUESTION = -1.0
"""The margin with which, under `rule`, every question that can be answered at all counts."""


def utility(labels: Labels, config: TargetConfig) -> FloatArray:
    """Return the metric less what tokens cost, `[n, C]`."""
    values = np.asarray(np.mean([labels.measures[name] for name in config.metrics], axis=0))
    if config.cost_weight:
        values = values - config.cost_weight * labels.measures["cost_tokens"] / PRICED_TOKENS
    return values


def make_targets(labels: Labels, config: TargetConfig, recipe: Sequence[str]) -> agent.TrainingTable:
    """Return the best configuration of each question as a training table; `recipe` names the parts of the features."""
    config = settled(config, "default", "target")
    classes, measured = labels.classes(), utility(labels, config)
    values = shrunk(measured, labels.data, config.shrink)
    near = values >= values.max(axis=1, keepdims=True) - (config.noise or 0.0)
    label = classes.label[cheapest(labels, near)]
    columns = [values[:, classes.label == one] for one in range(len(classes.names))]
    best = config.class_value == "best"
    of_class = np.stack([column.max(axis=1) if best else column.mean(axis=1) for column in columns], axis=1)
    settings = None
    if classes.grid is not None:
        tied = near & (classes.label[None] == label[:, None])
        settings = (tied @ classes.grid.settings / tied.sum(axis=1, keepdims=True)).astype(np.float32)
    return agent.TrainingTable(
        features=labels.features(recipe),
        label=label,
        weight=_weights(of_class, config).astype(np.float32),
        ids=labels.ids,
        quality=of_class.astype(np.float32),
        settings=settings,
        grid=classes.grid,
        utility=None if classes.grid is None else measured.astype(np.float32),
    )


def learnt_targets(labels: Labels, config: TargetConfig, recipe: Sequence[str]) -> agent.TrainingTable:
    """Return `make_targets` of the questions that are learnt from.

    Under `rule`, those whose best class does not lead are left out: they teach no label, are nobody's partner, and
    teach no settings either. An `agent.AgentError` says that none is left.
    """
    table, config = make_targets(labels, config, recipe), settled(config, "default", "target")
    if config.weighting != "rule":
        return table
    if not (table.weight > 0).any():
        raise agent.AgentError(
            f"none of {len(labels)} training questions is left: on none does the best class lead the next by more than "
            f"{config.margin:.0%} of {config.metric}; label more questions, or with rerankers that differ more, or "
            "lower target.margin"
        )
    return table.of(table.weight > 0)


def shrunk(values: FloatArray, data: NDArray[np.str_], share: float) -> FloatArray:
    """Return utilities, `[n, C]`, shrunk to the mean of their data folder by `share`, from 0 to 1.

    The mean of a folder with few questions is itself shrunk to that of all questions, by `PRIOR` questions' worth.
    """
    if not share:
        return values
    # What a question's configurations have in common says nothing about which is better.
    leads = values - values.mean(axis=1, keepdims=True)
    of_folder = np.empty_like(leads)
    for folder in np.unique(data):
        rows = data == folder
        of_folder[rows] = (leads[rows].sum(axis=0) + PRIOR * leads.mean(axis=0)) / (rows.sum() + PRIOR)
    drawn: FloatArray = values - share * (leads - of_folder)
    return drawn


def best_single(labels: Labels, values: FloatArray) -> int:
    """Return the configuration of the highest mean utility, `[n, C]`; ties go to the fewest orders scored."""
    return int(np.lexsort((_orders(labels).mean(axis=0), -values.mean(axis=0)))[0])


def cheapest(labels: Labels, among: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the configuration with the fewest tokens, then orders scored, then the first, `[n]`.

    `among`, `[n, C]`, says which configurations may be chosen for which question.
    """
    order = np.lexsort((_orders(labels), labels.measures["cost_tokens"], ~among), axis=1)
    return np.asarray(order[:, 0])


def _orders(labels: Labels) -> FloatArray:
    """Return the orders that each search scored, `[n, C]`; 0 for selectors that do not search."""
    return np.nan_to_num(labels.measures.get("orders_scored", np.zeros_like(labels.measures["cost_tokens"])))


def _weights(of_class: FloatArray, config: TargetConfig) -> FloatArray:
    ranked = np.sort(of_class, axis=1)[:, ::-1]
    first, second = ranked[:, 0], ranked[:, min(1, ranked.shape[1] - 1)]
    if config.weighting == "rule":
        return (first > (1 + config.margin) * second).astype(np.float64)
    lead = np.where(first - second > (config.noise or 0.0), first - second, 0.0)
    if config.weighting == "equal":
        return (lead > 0).astype(np.float64)
    return lead / lead[lead > 0].mean() if (lead > 0).any() else lead
