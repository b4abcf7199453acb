"""Methods that choose a configuration for a question: the agent, its ablations, baselines and oracles.

Every method sees the questions of one fold and returns one measured configuration per test question; it is tuned on the
validation questions. Predicted settings that were not measured count as the nearest ones that were.

Letters: `n` questions, `C` configurations, `R` rerankers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import agent
from agent.training.data import FeatureScaling
from corag.errors import InputError
from corag.optional import require
from experiments.agents.recipes import values_of
from experiments.agents.targets import (
    PAPER,
    best_of_rerankers,
    best_single,
    cheapest,
    learnt_targets,
    make_targets,
    shrunk,
    utility,
)
from experiments.agents.train import TrainAgentConfig, agent_config_of, class_of, descriptions_of
from experiments.labels.arrays import FloatArray, LabelArrays

NEIGHBOURS = (5, 10, 20, 40, 80, 160)
REGULARISATIONS = (0.1, 1.0, 10.0, 100.0)
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

Choices = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Fold:
    """The questions that a method learns from, and those that it chooses a configuration for.

    A method learns from `train` and chooses by `val`, such as the best epoch or the number of neighbours; `known` are
    both together, for methods that have nothing to choose, or have chosen. Only the oracle sees the figures of `test`.
    `folder` is where a training may keep its files.
    """

    train: LabelArrays
    val: LabelArrays
    known: LabelArrays
    test: LabelArrays
    config: TrainAgentConfig
    seed: int
    folder: Path

    @cached_property
    def best_of_rerankers(self) -> Choices:
        """The best single configuration of each reranker on the known questions, `[R]`."""
        return best_of_rerankers(self.known, self.utility(self.known))

    def utility(self, arrays: LabelArrays) -> FloatArray:
        """Return the utility of each configuration, `[n, C]`."""
        return utility(arrays, self.config.target)

    def training_utility(self, arrays: LabelArrays) -> FloatArray:
        """Return the utility that methods learn from, `[n, C]`; see `TargetConfig.shrink`."""
        return shrunk(self.utility(arrays), arrays.data, self.config.target.shrink)

    @cached_property
    def scaling(self) -> FeatureScaling | None:
        """How features are scaled, as for the agent."""
        known = self.train.features(self.config.parts)
        return FeatureScaling.of(known) if self.config.training.standardize else None

    def features(self, arrays: LabelArrays) -> NDArray[np.float32]:
        """Return the feature vectors as the agent's first layer sees them, `[n, d]`."""
        features = arrays.features(self.config.parts)
        return features if self.scaling is None else self.scaling(features)


Chooser = Callable[[LabelArrays], Choices]
"""Chooses for questions."""
Method = Callable[[Fold], Chooser]
"""Learns from a fold and returns what chooses."""


def run_method(name: str, fold: Fold) -> dict[str, Any]:
    """Train a method and let it choose, on one thread, so that times can be compared.

    An unknown method is an `InputError`, too little to learn from an `agent.AgentError`.

    Returns:
        `choices`, `[n]`; `fit_s`, seconds to learn; `predict_us`, the median time to choose for one question in
        microseconds, embedding excluded, over the first 20.
    """
    with require("threadpoolctl", "clustering").threadpool_limits(1):
        started = time.perf_counter()
        choose = method(name)(fold)
        fit_s = time.perf_counter() - started
        choices = np.asarray(choose(fold.test), dtype=np.int64).tolist()
        spent = []
        for row in range(min(20, len(fold.test))):
            one = fold.test.of([row])
            started = time.perf_counter()
            choose(one)
            spent.append(time.perf_counter() - started)
    return {"choices": choices, "fit_s": fit_s, "predict_us": float(np.median(spent)) * 1e6}


def best_single_method(fold: Fold) -> Chooser:
    """The configuration with the highest mean utility on the known questions, for every question."""
    choice = best_single(fold.known, fold.utility(fold.known))
    return lambda arrays: np.full(len(arrays), choice)


def majority(fold: Fold) -> Chooser:
    """The reranker that is most often the best one, with its best settings, for every question."""
    table = make_targets(fold.known, fold.config.target, fold.config.parts)
    label = int(np.bincount(table.label[table.weight > 0], minlength=len(fold.known.rerankers)).argmax())
    return lambda arrays: np.full(len(arrays), fold.best_of_rerankers[label])


def random_reranker(fold: Fold) -> Chooser:
    """A reranker drawn for each question, with its best settings."""
    rng = np.random.default_rng(fold.seed)
    return lambda arrays: fold.best_of_rerankers[rng.integers(0, len(fold.best_of_rerankers), len(arrays))]


def best_of_folder(fold: Fold) -> Chooser:
    """The best single configuration of the question's data folder, which no other method is told."""
    values = fold.utility(fold.known)
    overall = best_single(fold.known, values)
    rows = {name: np.flatnonzero(fold.known.data == name) for name in sorted(set(fold.known.data))}
    best = {name: best_single(fold.known.of(of_folder), values[of_folder]) for name, of_folder in rows.items()}
    return lambda arrays: np.array([best.get(name, overall) for name in arrays.data])


def nearest_neighbours(fold: Fold) -> Chooser:
    """The configuration with the highest mean utility on the nearest known questions, by cosine of the features."""

    def fit(known: LabelArrays, count: int) -> Chooser:
        vectors, values = _unit(fold.features(known)), fold.training_utility(known)

        def choose(arrays: LabelArrays) -> Choices:
            near = np.argsort(-_unit(fold.features(arrays)) @ vectors.T, axis=1, kind="stable")[:, :count]
            return _argmax(values[near].mean(axis=1))

        return choose

    return _tuned(fold, [count for count in NEIGHBOURS if count <= len(fold.train)] or [len(fold.train)], fit)


def ridge_regression(fold: Fold) -> Chooser:
    """The configuration with the highest utility as a ridge regression on the features predicts it."""
    linear_model = require("sklearn.linear_model", "clustering")

    def fit(known: LabelArrays, penalty: float) -> Chooser:
        values = fold.training_utility(known)
        # What a question's configurations have in common says nothing about which is better.
        leads = values - values.mean(axis=1, keepdims=True)
        model = linear_model.Ridge(alpha=penalty).fit(fold.features(known), leads)
        return lambda arrays: _argmax(model.predict(fold.features(arrays)))

    return _tuned(fold, PENALTIES, fit)


def logistic_regression(fold: Fold) -> Chooser:
    """The most probable best reranker, with its best settings, by logistic regression on the features."""
    linear_model = require("sklearn.linear_model", "clustering")
    return _classified(fold, [partial(linear_model.LogisticRegression, C=c, max_iter=300) for c in REGULARISATIONS])


def boosted_trees(fold: Fold) -> Chooser:
    """The most probable best reranker, with its best settings, by gradient-boosted trees on the features."""
    ensemble = require("sklearn.ensemble", "clustering")
    settings = {"max_iter": 40, "max_leaf_nodes": 8, "max_features": 0.2, "early_stopping": False}
    make = partial(ensemble.HistGradientBoostingClassifier, **settings, random_state=fold.seed)
    return _classified(fold, [make])


def _classified(fold: Fold, makers: Sequence[Callable[[], Any]]) -> Chooser:
    def fit(known: LabelArrays, make: Callable[[], Any]) -> Chooser:
        table = make_targets(known, fold.config.target, fold.config.parts)
        table.check_trainable()
        counts = table.weight > 0
        model = make().fit(fold.features(known)[counts], table.label[counts], sample_weight=table.weight[counts])
        return lambda arrays: fold.best_of_rerankers[model.predict(fold.features(arrays))]

    return _tuned(fold, makers, fit)


def _tuned(fold: Fold, settings: Sequence[T], fit: Callable[[LabelArrays, T], Chooser]) -> Chooser:
    """Return what was learned from all known questions, with the setting of highest mean utility on the validation."""
    if len(settings) == 1:
        return fit(fold.known, settings[0])
    values, rows = fold.utility(fold.val), np.arange(len(fold.val))
    gains = [float(values[rows, fit(fold.train, setting)(fold.val)].mean()) for setting in settings]
    return fit(fold.known, settings[int(np.argmax(gains))])


def oracle(fold: Fold) -> Chooser:
    """The best configuration of each test question, among equals the cheapest: the ceiling, noise included."""

    def choose(arrays: LabelArrays) -> Choices:
        values = fold.utility(arrays)
        return cheapest(arrays, values == values.max(axis=1, keepdims=True))

    return choose


def oracle_reranker(fold: Fold) -> Chooser:
    """The best reranker of each test question, each with its best single settings."""
    return lambda arrays: fold.best_of_rerankers[_argmax(fold.utility(arrays)[:, fold.best_of_rerankers])]


def trained_agent(fold: Fold) -> Chooser:
    """The agent: network, losses and inputs as configured."""
    config = fold.config
    descriptions = descriptions_of(fold.known, config)
    agent_config = agent_config_of(fold.known, config, tuple(map(class_of, descriptions.texts)))
    report = agent.fit(
        learnt_targets(fold.train, config.target, config.parts),
        make_targets(fold.val, config.target, config.parts),
        agent_config,
        replace(config.training, seed=fold.seed, logger="none"),
        fold.folder,
        descriptions=descriptions.vectors,
    )

    def choose(arrays: LabelArrays) -> Choices:
        predictions = report.agent.predict(arrays.features(config.parts))
        assert isinstance(predictions, list)
        labels = [agent_config.configurations.index(found.configuration) for found in predictions]
        settings = [
            [found.iterations or 0, found.exploration or 0.0, found.cost_weight or 0.0] for found in predictions
        ]
        assert agent_config.ranges is not None
        return arrays.grid.nearest(labels, settings, agent_config.ranges)

    return choose


BASELINES: Mapping[str, Method] = {
    "random": random_reranker,
    "majority": majority,
    "best-single": best_single_method,
    "best-of-folder": best_of_folder,
    "knn": nearest_neighbours,
    "logistic": logistic_regression,
    "boosted": boosted_trees,
    "ridge": ridge_regression,
    "oracle-reranker": oracle_reranker,
    "oracle": oracle,
}
AGENT, WITHOUT_MIN_LEAD = "agent", "agent-without-min-lead"


def ablations(config: TrainAgentConfig) -> dict[str, TrainAgentConfig]:
    """Return the agent without each of its losses and inputs, and the paper's recipe, by name."""
    training, parts = config.training, config.parts
    found = {}
    losses = ("contrastive", "choice", "settings", "regret")
    used = [name for name in losses if getattr(training, f"{name}_weight")]
    for loss in used if len(used) > 1 else ():
        without: dict[str, Any] = {f"{loss}_weight": 0.0}
        found[f"agent-without-{loss}-loss"] = replace(config, training=replace(training, **without))
    for part in parts if len(parts) > 1 else ():
        rest = ",".join(name for name in parts if name != part)
        found[f"agent-without-{part}"] = replace(config, features=rest)
    if training.temperature:
        found["agent-hard-labels"] = replace(config, training=replace(training, temperature=0.0))
    if config.min_lead:
        found[WITHOUT_MIN_LEAD] = replace(config, min_lead=0.0)
    if config.describe:
        found["agent-without-descriptions"] = replace(config, describe=False, descriptions={})
    paper = replace(training, **values_of("paper", "training"))
    found["agent-paper"] = replace(config, recipe="paper", **values_of("paper"), training=paper, target=PAPER)
    return found


def method(name: str) -> Method:
    """Return a method by name; an unknown one is an `InputError`."""
    if name in BASELINES:
        return BASELINES[name]

    def run(fold: Fold) -> Chooser:
        configs = {AGENT: fold.config, **ablations(fold.config)}
        if name not in configs:
            raise InputError(f"unknown method {name!r}; the methods are {', '.join((*BASELINES, *configs))}")
        return trained_agent(replace(fold, config=configs[name]))

    return run


def _unit(features: NDArray[np.float32]) -> FloatArray:
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.maximum(lengths, 1e-12), dtype=np.float64)


def _argmax(values: NDArray[np.floating]) -> Choices:
    return np.asarray(values.argmax(axis=1), dtype=np.int64)
