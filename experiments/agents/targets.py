"""What the agent should have said: the utility of each configuration on each question, and the best one.

The utility of a selection is

    kept - price * tokens / 256

where `kept` is what the context holds of answer and evidence (`experiments.evaluation.metrics.kept`), which needs no
reader: a small extractive reader answers no better from more text, where a language model does. The price, 0.01 by
default, only decides between configurations that hold nearly the same.

Letters: `n` questions, `C` configurations, `R` classes of the agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

import agent
from corag.errors import DataError, InputError
from corag.selectors.corag.search import REFERENCE_TOKENS
from corag.types import FloatArray
from experiments.agents.recipes import with_recipe_defaults
from experiments.evaluation.metrics import kept, quality
from experiments.labels.table import Labels

Weighting = Literal["equal", "rule"]
QUALITY = "quality"
"""The metric that is the mean of answer and evidence."""
KEPT = "kept"
"""The metric that needs no reader: what a context holds. Any other metric is a measure of the labels."""


@dataclass(frozen=True)
class TargetConfig:
    """What makes one configuration better than another.

    Attributes:
        metric: `kept`, what a context holds of answer and evidence; `quality`, the mean of answer and evidence; or a
            measure of the labels. By default as the recipe has it: kept, in the paper's rougeL.
        price: What 256 tokens of a selection cost, in units of the metric; by default 0.01, in the paper's recipe 0.
        weighting: What a question teaches. With `equal`, the default, the mean utilities of its data folder, where
            there are several, because single answers are noisy labels; it counts unless all classes are worth the same.
            With `rule`, which is the paper's, its own utilities, and only if its best class leads the next by more
            than the share `margin`. It changes the targets, not how predictions are evaluated.
        margin: Share of the next class's utility, 0.1 for 10%; see `weighting`. The paper (5.2.2) does not say of what
            its 10% are.
    """

    metric: str | None = None
    price: float | None = None
    weighting: Weighting | None = None
    margin: float = 0.1

    def __post_init__(self) -> None:
        if self.price is not None and not 0 <= self.price < np.inf:
            raise InputError(f"expected price to be a finite number of at least 0, got {self.price}")
        if not np.isfinite(self.margin):
            raise InputError(f"margin must be a finite number, got {self.margin}")
        if self.weighting not in (None, *get_args(Weighting)):
            raise InputError(f"weighting must be one of {', '.join(get_args(Weighting))}; got {self.weighting!r}")


FILLING = "naive(reranker=minilm-softsim)"
"""What fills the budget: what is promised is measured by it."""
PRIOR, FORECAST_PRIOR = 20, 5
"""Questions' worth of weight that the mean over all data folders has in the mean of one; in forecasts, where it would
hide what is known of a kind, a few."""


def utility(labels: Labels, config: TargetConfig) -> FloatArray:
    """Return the metric less what tokens cost, `[n, C]`; NaN where a question has no such figure.

    An unknown measure is an `InputError`.
    """
    config = with_recipe_defaults(config, "default", "target")
    metric = config.metric or KEPT
    if metric not in (KEPT, QUALITY, *labels.measures):
        known = ", ".join((KEPT, QUALITY, *labels.measures))
        raise InputError(f"metric {metric!r} is not in the labels; they have {known}")
    if metric == KEPT:
        values = kept(labels.measures)
    else:
        values = quality(labels.measures, labels.long_form[:, None]) if metric == QUALITY else labels.measures[metric]
    if not np.isfinite(values).any():
        raise DataError(f"no question has {metric}: label questions with answers or gold passages")
    return np.asarray(values - (config.price or 0.0) * labels.measures["cost_tokens"] / REFERENCE_TOKENS)


def best_configuration(labels: Labels, values: FloatArray) -> NDArray[np.int64]:
    """Return the configuration of the highest utility, `[n, C]`, for each question, `[n]`.

    Of equals, it is the one with the fewest tokens, then orders scored, then the first.
    """
    return np.asarray(np.lexsort((_orders(labels), labels.measures["cost_tokens"], -values), axis=1)[:, 0])


def forecasts(labels: Labels) -> FloatArray:
    """Return what each configuration holds and which share of the budget it spends, `[n, 2, C]`, as it is learned.

    As other targets, leads are those of the data folder; see `shrunk`.
    """
    tables = kept(labels.measures), labels.measures["cost_tokens"] / labels.budget[:, None]
    return np.stack([shrunk(table, labels.text, FORECAST_PRIOR) for table in tables], axis=1).clip(0.0, 1.0)


def make_targets(
    labels: Labels, config: TargetConfig, recipe: Sequence[str], *, forecast: bool = False
) -> agent.TrainingTable:
    """Return the best configuration of each question as a training table; `recipe` names the parts of the features.

    With `forecast`, for an agent that forecasts, with what each configuration holds and spends.
    """
    config = with_recipe_defaults(config, "default", "target")
    classes = labels.classes()
    values = taught(labels, config)
    best = best_configuration(labels, values)
    label = classes.label[best]
    columns = [values[:, classes.label == number].max(axis=1) for number in range(len(classes.names))]
    of_class = np.stack(columns, axis=1)
    settings = None
    if classes.settings is not None:
        as_good = values >= np.take_along_axis(values, best[:, None], axis=1)
        tied = as_good & (classes.label[None] == label[:, None])
        settings = (tied @ classes.settings / tied.sum(axis=1, keepdims=True)).astype(np.float32)
    # Searches with other settings often find the same order, so the best of many configurations seldom leads the next.
    ranked = np.sort(of_class, axis=1)[:, ::-1]
    leads = ranked[:, 0] > ranked[:, -1]
    if config.weighting == "rule":
        following = ranked[:, min(1, ranked.shape[1] - 1)]
        leads = ranked[:, 0] > (1 + np.sign(following) * config.margin) * following
    return agent.TrainingTable(
        features=labels.features(recipe),
        label=label,
        weight=leads.astype(np.float32),
        ids=labels.ids,
        quality=of_class.astype(np.float32),
        settings=settings,
        forecast=forecasts(labels).astype(np.float32) if forecast else None,
        text=np.unique(labels.text, return_inverse=True)[1] if forecast else None,
    )


def learnt_targets(
    labels: Labels, config: TargetConfig, recipe: Sequence[str], *, forecast: bool = False
) -> agent.TrainingTable:
    """Return `make_targets` of the questions that are learnt from.

    Under `rule`, those whose best class does not lead are left out: they teach no label, form no contrastive pairs, and
    teach no settings either. An `InputError` says that none is left.
    """
    table = make_targets(labels, config, recipe, forecast=forecast)
    config = with_recipe_defaults(config, "default", "target")
    if config.weighting != "rule":
        return table
    if not (table.weight > 0).any():
        raise InputError(
            f"none of {len(labels)} training questions is left: on none does the best class lead the next by more than "
            f"{config.margin:.0%} of {config.metric}; label more questions, or with rerankers that differ more, or "
            "lower target.margin"
        )
    return table.of(table.weight > 0)


def taught(labels: Labels, config: TargetConfig) -> FloatArray:
    """Return the utilities that are learnt from, `[n, C]`; see `TargetConfig.weighting`."""
    values, config = utility(labels, config), with_recipe_defaults(config, "default", "target")
    return shrunk(values, labels.data) if config.weighting == "equal" else values


def shrunk(values: FloatArray, data: NDArray[np.str_], prior: int = PRIOR) -> FloatArray:
    """Return utilities, `[n, C]`, shrunk to the mean of their data folder, `[n]`.

    The mean of a folder with few questions is itself shrunk to that of all questions, by `prior` questions' worth. Of
    one folder all questions would have one target, so nothing is shrunk.
    """
    if len(set(data)) < 2:
        return values
    # What a question's configurations have in common says nothing about which is better.
    leads = values - values.mean(axis=1, keepdims=True)
    of_folder = np.empty_like(leads)
    for folder in np.unique(data):
        rows = data == folder
        of_folder[rows] = (leads[rows].sum(axis=0) + prior * leads.mean(axis=0)) / (rows.sum() + prior)
    drawn: FloatArray = values - (leads - of_folder)
    return drawn


def best_single(labels: Labels, values: FloatArray) -> int:
    """Return the configuration of the highest mean utility, `[n, C]`; ties go to the fewest orders scored."""
    return int(np.lexsort((_orders(labels).mean(axis=0), -values.mean(axis=0)))[0])


def best_fallback(labels: Labels, values: FloatArray, filling: object = None) -> int:
    """Return `best_single`; with a configuration that fills budgets, of the questions that this is not the fallback of.

    Those are the ones whose budget holds less than `agent.ROOM` passages; if there are none, it is of all.
    """
    near = labels.room < agent.ROOM
    if filling is None or not near.any():
        return best_single(labels, values)
    return best_single(labels.of(near), values[near])


def _orders(labels: Labels) -> FloatArray:
    """Return the orders that each search scored, `[n, C]`; 0 for selectors that do not search."""
    return np.nan_to_num(labels.measures.get("orders_scored", np.zeros_like(labels.measures["cost_tokens"])))
