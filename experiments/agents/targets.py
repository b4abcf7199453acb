"""What the agent should have said: the utility of each configuration on each question, and the best one.

The utility of a selection is

    metric - price * tokens / 256

By default the metric is `context_recall`, what the context holds of answer and evidence
(`experiments.evaluation.metrics`), which needs no reader. The paper's is the ROUGE-L of the answer, at no price.

Letters: `n` questions, `C` configurations, `R` classes of the agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import agent
from common.checks import check_range
from common.configuration import parse
from corag.errors import DataError, InputError
from corag.selectors.corag.search import REFERENCE_TOKENS
from corag.types import FloatArray
from experiments.evaluation.metrics import context_recall
from experiments.labels.table import Labels
from experiments.report.difference import paired_difference

DEFAULT = parse("corag")
"""What is used without an agent: the best on many kinds of questions."""
CONTEXT_RECALL = "context_recall"
"""Metric beside the measures of the labels."""


@dataclass(frozen=True)
class TargetConfig:
    """What makes one configuration better than another, and which questions are learnt from.

    Attributes:
        metric: `context_recall`, what a context holds of answer and evidence, or a measure of the labels, such as the
            paper's `rougeL`.
        price: What 256 tokens of a selection cost, in units of the metric; in the paper 0.
        margin: Share of the next class's utility by which the best has to lead for a question to be learnt from, 0.1
            for 10%. The paper (5.2.2) does not say of what its 10% are. It changes the targets, not how predictions are
            evaluated.
    """

    metric: str = CONTEXT_RECALL
    price: float = 0.01
    margin: float = 0.1

    def __post_init__(self) -> None:
        check_range("price", self.price, 0, np.inf)
        check_range("margin", self.margin, -1, np.inf)


def utility(labels: Labels, config: TargetConfig) -> FloatArray:
    """Return the metric less what tokens cost, `[n, C]`; NaN where a question has no such figure.

    An unknown measure is an `InputError`.
    """
    metric = config.metric
    if metric not in (known := (CONTEXT_RECALL, *labels.measures)):
        raise InputError(f"metric {metric!r} is not in the labels; they have {', '.join(known)}")
    values = context_recall(labels.measures) if metric == CONTEXT_RECALL else labels.measures[metric]
    if not np.isfinite(values).all(axis=1).any():
        raise DataError(f"no question has {metric} of every configuration; label some with gold, or set another metric")
    return np.asarray(values - config.price * labels.measures["cost_tokens"] / REFERENCE_TOKENS)


def best_configuration(labels: Labels, values: FloatArray) -> NDArray[np.int64]:
    """Return the configuration of the highest utility, `[n, C]`, for each question, `[n]`.

    Of equals, it is the one with the fewest tokens, then orders scored, then the first.
    """
    return np.asarray(np.lexsort((_orders(labels), labels.measures["cost_tokens"], -values), axis=1)[:, 0])


def make_targets(labels: Labels, config: TargetConfig, recipe: Sequence[str]) -> agent.TrainingTable:
    """Return the best configuration of each question as a training table; `recipe` names the parts of the features.

    A question has weight 1 if its best class leads the next by more than the margin (paper 5.2.2), else 0.
    """
    classes, values = labels.classes(), utility(labels, config)
    best = best_configuration(labels, values)
    label = classes.label[best]
    columns = [values[:, classes.label == number].max(axis=1) for number in range(len(classes.names))]
    of_class = np.stack(columns, axis=1)
    settings = None
    if classes.settings is not None:
        # Searches with other settings often find the same order: the mean of all that are as good.
        as_good = values >= np.take_along_axis(values, best[:, None], axis=1)
        tied = as_good & (classes.label[None] == label[:, None])
        settings = (tied @ classes.settings / tied.sum(axis=1, keepdims=True)).astype(np.float32)
    ranked = np.sort(of_class, axis=1)[:, ::-1]
    following = ranked[:, min(1, ranked.shape[1] - 1)]
    leads = ranked[:, 0] > (1 + np.sign(following) * config.margin) * following
    return agent.TrainingTable(
        features=labels.features(recipe),
        label=label,
        weight=leads.astype(np.float32),
        ids=labels.ids,
        quality=of_class.astype(np.float32),
        settings=settings,
    )


def training_targets(labels: Labels, config: TargetConfig, recipe: Sequence[str]) -> agent.TrainingTable:
    """Return `make_targets` of the questions that are learnt from: those of weight 0 teach no settings either.

    An `InputError` says that none is left.
    """
    table = make_targets(labels, config, recipe)
    if not (table.weight > 0).any():
        raise InputError(
            f"none of {len(labels)} training questions is left: on none does the best class lead the next by more than "
            f"{config.margin:.0%} of {config.metric}; label more questions, or with rerankers that differ more, or "
            "lower target.margin"
        )
    return table.of(table.weight > 0)


def best_single(labels: Labels, values: FloatArray) -> int:
    """Return the configuration of the highest mean utility, `[n, C]`; ties go to the fewest orders scored.

    If the default is among them, it is the default unless that one is ahead of it beyond chance.
    """
    best = int(np.lexsort((_orders(labels).mean(axis=0), -values.mean(axis=0)))[0])
    if DEFAULT in labels.configurations:
        default = labels.configurations.index(DEFAULT)
        lead = paired_difference(values[:, best], values[:, default], groups=labels.group.tolist())
        best = best if lead.low > 0 else default
    return best


def _orders(labels: Labels) -> FloatArray:
    """Return the orders that each search scored, `[n, C]`; 0 for selectors that do not search."""
    return np.nan_to_num(labels.measures.get("orders_scored", np.zeros_like(labels.measures["cost_tokens"])))
