"""What the agent should have said: the best configuration of each question, with ties and noise in mind.

Letters: `n` questions, `C` configurations, `R` rerankers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

import agent
from corag.errors import InputError
from experiments.agents.recipes import Recipe, left_open, values_of
from experiments.labels.arrays import FloatArray, LabelArrays

Weighting = Literal["margin", "rule", "equal"]
RerankerValue = Literal["best", "mean"]


@dataclass(frozen=True)
class TargetConfig:
    """What makes one configuration better than another.

    Attributes:
        metric: Figure of the labels; several joined by `+`, such as `f1+full_evidence`, are averaged. By default as the
            recipe has it: f1, in the paper's rougeL.
        token_weight: Penalty for using the whole budget, in units of the metric; a selection pays its share of it. 0
            ignores tokens, 0.1 and more favours short selections.
        latency_weight: Penalty for a second of search, in units of the metric.
        noise: Configurations whose utility is within this of the best count as equally good: the cheapest of them (in
            tokens, then orders scored) gives the reranker, their mean the settings. By default 0.02, in the paper's
            recipe 0.
        weighting: Weight of a question for the reranker label: the lead of the best reranker over the next (margin), or
            1 if it leads by more than `noise`, else 0 (equal). Or only questions whose best reranker leads the next by
            more than the share `margin` are learnt from, each alike (rule, which is the paper's; by default margin).
        margin: Share of the next reranker's utility, 0.1 for 10%; see `weighting`.
        reranker_value: Utility of a reranker on a question: the best over its settings, or their mean, which is less
            noisy.
        shrink: Share, from 0 to 1, by which each question's utilities are shrunk to the mean of its data folder,
            because single answers are noisy labels. It changes the targets, not how predictions are evaluated.
    """

    metric: str | None = None
    token_weight: float = 0.0
    latency_weight: float = 0.0
    noise: float | None = None
    weighting: Weighting | None = None
    margin: float = 0.1
    reranker_value: RerankerValue = "best"
    shrink: float = 0.0

    def __post_init__(self) -> None:
        if self.metric is not None and not all(self.metrics):
            raise InputError(f"metric is {self.metric!r}; give a figure of the labels, or several joined by +")
        for name in ("token_weight", "latency_weight", "noise"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < np.inf:
                raise InputError(f"{name} must be a finite number of at least 0, got {value}")
        if not 0 <= self.shrink <= 1:
            raise InputError(f"shrink must be between 0 and 1, got {self.shrink}")
        if not np.isfinite(self.margin):
            raise InputError(f"margin must be a finite number, got {self.margin}")
        for name, choices in (("weighting", Weighting), ("reranker_value", RerankerValue)):
            if getattr(self, name) not in (None, *get_args(choices)):
                raise InputError(f"{name} must be one of {', '.join(get_args(choices))}; got {getattr(self, name)!r}")

    @property
    def metrics(self) -> list[str]:
        """The figures that `metric` names."""
        metric = values_of("default", "target")["metric"] if self.metric is None else self.metric
        return [name.strip() for name in metric.split("+")]

    def settled(self, recipe: Recipe = "default") -> TargetConfig:
        """Return the target with what it leaves open as a recipe has it; the functions here take the default one."""
        return replace(self, **left_open(self, recipe, "target"))


PAPER = TargetConfig(**values_of("paper", "target"))
"""The paper's targets (5.2.2): best ROUGE-L; questions whose best reranker is better than the next by more than 10%.

The paper does not say 10% of what; here it is of the next one's ROUGE-L.
"""

PRIOR = 20
"""Questions' worth of weight that the mean over all data folders has in the mean of one."""

EVERY_QUESTION = -1.0
"""The margin with which, under `rule`, every question that can be answered at all counts."""


def quality(arrays: LabelArrays, config: TargetConfig) -> FloatArray:
    """Return the metric of each configuration, `[n, C]`."""
    return np.asarray(np.mean([arrays.figures[name] for name in config.metrics], axis=0))


def utility(arrays: LabelArrays, config: TargetConfig) -> FloatArray:
    """Return quality less what tokens and time cost, `[n, C]`."""
    values = quality(arrays, config)
    if config.token_weight:
        values = values - config.token_weight * arrays.figures["budget_share"]
    if config.latency_weight:
        values = values - config.latency_weight * arrays.figures["latency_ms"] / 1000
    return values


def make_targets(arrays: LabelArrays, config: TargetConfig, recipe: Sequence[str]) -> agent.TrainingTable:
    """Return the best configuration of each question as a training table; `recipe` names the parts of the features."""
    config = config.settled()
    measured = utility(arrays, config)
    values = shrunk(measured, arrays.data, config.shrink)
    near = values >= values.max(axis=1, keepdims=True) - (config.noise or 0.0)
    chosen = cheapest(arrays, near)
    label = arrays.grid.label[chosen]
    tied = near & (arrays.grid.label[None] == label[:, None])
    columns = [values[:, arrays.grid.label == label] for label in range(int(arrays.grid.label.max()) + 1)]
    best = config.reranker_value == "best"
    of_reranker = np.stack([column.max(axis=1) if best else column.mean(axis=1) for column in columns], axis=1)
    return agent.TrainingTable(
        features=arrays.features(recipe),
        label=label,
        settings=(tied @ arrays.grid.settings / tied.sum(axis=1, keepdims=True)).astype(np.float32),
        weight=_weights(of_reranker, config).astype(np.float32),
        quality=of_reranker.astype(np.float32),
        ids=arrays.ids,
        grid=arrays.grid,
        utility=measured.astype(np.float32),
    )


def learnt_targets(arrays: LabelArrays, config: TargetConfig, recipe: Sequence[str]) -> agent.TrainingTable:
    """Return `make_targets` of the questions that are learnt from.

    Under `rule`, those whose best reranker does not lead are left out: they teach no label, are nobody's partner, and
    teach no settings either. An `agent.AgentError` says that none is left.
    """
    table, config = make_targets(arrays, config, recipe), config.settled()
    if config.weighting != "rule":
        return table
    if not (table.weight > 0).any():
        raise agent.AgentError(
            f"none of {len(arrays)} training questions is left: on none does the best of {len(arrays.rerankers)} "
            f"rerankers lead the next by more than {config.margin:.0%} of {config.metric}; label more questions, or "
            "with rerankers that differ more, or lower target.margin"
        )
    return table.of(table.weight > 0)


def shrunk(values: FloatArray, data: NDArray[np.str_], share: float) -> FloatArray:
    """Return utilities, `[n, C]`, drawn to the mean of their data folder by `share`, from 0 to 1.

    The mean of a folder with few questions is itself drawn to that of all questions, by `PRIOR` questions' worth.
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


def best_single(arrays: LabelArrays, values: FloatArray) -> int:
    """Return the configuration with the highest mean utility; among equals the one that scored the fewest orders."""
    orders = arrays.figures["orders_scored"].mean(axis=0)
    return int(np.lexsort((orders, -values.mean(axis=0)))[0])


def best_of_rerankers(arrays: LabelArrays, values: FloatArray) -> NDArray[np.int64]:
    """Return the best single configuration of each reranker, `[R]`."""
    rows = [np.flatnonzero(arrays.grid.label == label) for label in range(len(arrays.rerankers))]
    orders, means = arrays.figures["orders_scored"].mean(axis=0), values.mean(axis=0)
    return np.array([row[np.lexsort((orders[row], -means[row]))[0]] for row in rows], dtype=np.int64)


def cheapest(arrays: LabelArrays, among: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the configuration with the fewest tokens, then orders scored, then the first, `[n]`.

    `among`, `[n, C]`, says which configurations may be chosen for which question.
    """
    tokens, orders = arrays.figures["cost_tokens"], arrays.figures["orders_scored"]
    order = np.lexsort((orders, tokens, ~among), axis=1)
    return np.asarray(order[:, 0])


def _weights(of_reranker: FloatArray, config: TargetConfig) -> FloatArray:
    ranked = np.sort(of_reranker, axis=1)[:, ::-1]
    first, second = ranked[:, 0], ranked[:, min(1, ranked.shape[1] - 1)]
    if config.weighting == "rule":
        return (first > (1 + config.margin) * second).astype(np.float64)
    lead = np.where(first - second > (config.noise or 0.0), first - second, 0.0)
    if config.weighting == "equal":
        return (lead > 0).astype(np.float64)
    return lead / lead[lead > 0].mean() if (lead > 0).any() else lead
