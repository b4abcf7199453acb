"""One configuration chosen for the questions of a user, and what that gains on questions that took no part.

Letters: `n` questions, `C` configurations. Qualities are `[n, C]`, nan where a question has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corag.types import FloatArray
from experiments.data.splits import divide
from experiments.protocol.leads import Lead, Quality, lead
from experiments.tune.router import Router, fit_router
from experiments.tune.shrinkage import Estimate, Prior, best, estimate, prior_of, unknown_prior
from experiments.tune.sweep import Labels
from experiments.tune.table import LabelRow

FOLDS = 5
CLUSTERS = (2, 3, 4)
"""Numbers of kinds that are looked for among the questions."""
MIN_CLUSTER = 20
"""Different questions that a kind must have, on average, for a router to be tried."""
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Labelled:
    """The questions of a user under every configuration.

    Attributes:
        names: The configurations, the default first.
        qualities: How well each serves each question, `[n, C]`.
        groups: Group of each question, `[n]`; those of a group share documents.
        vectors: Embedding of each question, `[n, d]`.
    """

    names: tuple[str, ...]
    qualities: FloatArray
    groups: NDArray[np.str_]
    vectors: FloatArray

    def rows(self, places: NDArray[np.intp]) -> Labelled:
        """Return some of the questions."""
        return Labelled(self.names, self.qualities[places], self.groups[places], self.vectors[places])

    def gains(self, name: str) -> FloatArray:
        """Return the gain of a configuration over the default, `[n]`."""
        gains: FloatArray = self.qualities[:, self.names.index(name)] - self.qualities[:, 0]
        return gains


@dataclass(frozen=True)
class Chosen:
    """What is chosen, and why.

    Attributes:
        configuration: The configuration.
        estimates: What is known about each configuration's gain over the default.
        lead: Gain over the default on questions that took no part in the choice (cross-validation over documents).
        router: Chooses by the question, where that gains; else None.
        router_lead: Gain of the router over the single choice, likewise; None where no router was tried.
    """

    configuration: str
    estimates: Mapping[str, Estimate]
    lead: Lead
    router: Router | None = None
    router_lead: Lead | None = None


def labelled(
    names: Sequence[str], labels: Sequence[Labels], groups: Sequence[str], vectors: FloatArray, quality: Quality
) -> Labelled:
    """Return labels as arrays; questions that some configuration has no quality for are left out."""
    rows = [[quality.of(of_question[name]) for name in names] for of_question in labels]
    known = np.array([None not in row for row in rows], dtype=bool)
    values = np.array([row for row, there in zip(rows, known, strict=True) if there], dtype=np.float64)
    return Labelled(
        tuple(names), values.reshape(-1, len(names)), np.array(groups, dtype=str)[known], np.asarray(vectors)[known]
    )


def priors(rows: Sequence[LabelRow], names: Sequence[str], default: str, quality: Quality) -> dict[str, Prior]:
    """Return what a table of labels says about each configuration on kinds that it does not hold."""
    of_question: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        if (value := quality.of(row)) is not None:
            of_question.setdefault((row["kind"], row["query"]), {})[row["configuration"]] = value
    known: dict[str, Prior] = {}
    for name in sorted({row["configuration"] for row in rows} - {default}):
        gains: dict[str, list[float]] = {}
        for (kind, _), values in of_question.items():
            if name in values and default in values:
                gains.setdefault(kind, []).append(values[name] - values[default])
        if gains:
            known[name] = prior_of({kind: np.array(values) for kind, values in gains.items()})
    other = unknown_prior(list(known.values()))
    return {name: known.get(name, other) for name in names if name != default}


def estimates(questions: Labelled, known: Mapping[str, Prior]) -> dict[str, Estimate]:
    """Return what is known about the gain of every configuration but the default."""
    groups = questions.groups.tolist()
    return {name: estimate(questions.gains(name), groups, known[name]) for name in questions.names[1:]}


def choose(questions: Labelled, known: Mapping[str, Prior], *, seed: int = 0) -> Chosen:
    """Return the configuration with the highest posterior mean, a router where one gains more, and what both gain."""
    default = questions.names[0]
    found = estimates(questions, known)
    chosen = best(found, default)
    parts = _folds(questions, seed)
    single = np.zeros(len(questions.qualities))
    for fold in np.unique(parts):
        inside, outside = np.flatnonzero(parts != fold), np.flatnonzero(parts == fold)
        name = best(estimates(questions.rows(inside), known), default)
        single[outside] = questions.qualities[outside, questions.names.index(name)]
    groups = questions.groups.tolist()
    gain = lead(single - questions.qualities[:, 0], groups, seed=seed)
    router, router_lead = _router(questions, known, parts, single, seed)
    return Chosen(chosen, found, gain, router, router_lead)


def _folds(questions: Labelled, seed: int) -> NDArray[np.int64]:
    return divide([""] * len(questions.groups), questions.groups, [1.0] * FOLDS, seed)


def _router(
    questions: Labelled, known: Mapping[str, Prior], parts: NDArray[np.int64], single: FloatArray, seed: int
) -> tuple[Router | None, Lead | None]:
    """Return a router where one beats the single choice on questions that took no part, and its lead."""
    tried: list[tuple[Lead, int]] = []
    distinct = len(np.unique(questions.vectors, axis=0))
    for clusters in CLUSTERS:
        if distinct < clusters * MIN_CLUSTER:
            continue
        routed = np.zeros(len(questions.qualities))
        for fold in np.unique(parts):
            inside, outside = np.flatnonzero(parts != fold), np.flatnonzero(parts == fold)
            router = fit_router(questions.rows(inside), known, clusters, seed=seed)
            columns = [questions.names.index(name) for name in router.configurations_of(questions.vectors[outside])]
            routed[outside] = questions.qualities[outside, columns]
        tried.append((lead(routed - single, questions.groups.tolist(), seed=seed), clusters))
    if not tried:
        return None, None
    found, clusters = max(tried, key=lambda one: one[0].mean)
    # As many looks at the same questions as numbers of kinds were tried.
    if found.mean <= 0 or found.p >= SIGNIFICANT / len(tried):
        return None, found
    return fit_router(questions, known, clusters, seed=seed), found
