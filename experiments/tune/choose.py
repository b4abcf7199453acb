"""One configuration chosen for the questions of a user, and what that gains on questions that took no part.

Letters: `n` questions, `C` configurations. Qualities are `[n, C]`, nan where a question has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corag.selectors.corag.routing import FREE, LEAST_GAIN, Prices, Router, Worth
from corag.types import FloatArray
from experiments.data.splits import divide
from experiments.protocol.leads import Lead, Quality, lead
from experiments.tune.router import fit_router
from experiments.tune.shrinkage import Estimate, Prior, estimate, prior_of, together, unknown_prior
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
        shares: Tokens of each selection over the budget, `[n, C]`.
        seconds: Of a selection by each configuration, `[C]`.
    """

    names: tuple[str, ...]
    qualities: FloatArray
    groups: NDArray[np.str_]
    vectors: FloatArray
    shares: FloatArray
    seconds: FloatArray

    def rows(self, places: NDArray[np.intp]) -> Labelled:
        """Return some of the questions."""
        return Labelled(
            self.names,
            self.qualities[places],
            self.groups[places],
            self.vectors[places],
            self.shares[places],
            self.seconds,
        )

    def gains(self, name: str) -> FloatArray:
        """Return the gain in quality of a configuration over the default, `[n]`."""
        gains: FloatArray = self.qualities[:, self.names.index(name)] - self.qualities[:, 0]
        return gains

    def utility(self, prices: Prices) -> FloatArray:
        """Return quality less costs, `[n, C]`."""
        return Worth(self.qualities, self.shares, self.seconds).utility(prices)

    def worth(self, found: Mapping[str, Estimate]) -> Worth:
        """Return the gain in quality that can be counted on, and mean costs, `[C]` each."""
        gains = [found[name].cautious if name in found else 0.0 for name in self.names]
        return Worth(np.array(gains), self.shares.mean(axis=0), self.seconds)


@dataclass(frozen=True)
class Chosen:
    """What is chosen, and why.

    Attributes:
        configuration: The configuration.
        estimates: What is known about each configuration's gain in quality over the default.
        worth: The same, and what each costs, `[C]`.
        lead: Gain over the default on questions that took no part in the choice (cross-validation over documents), in
            quality less costs.
        router: Chooses by the question, where that gains; else None.
        router_names: The configurations that it chooses among.
        router_lead: Gain of the router over the single choice, likewise; None where no router was tried.
    """

    configuration: str
    estimates: Mapping[str, Estimate]
    worth: Worth
    lead: Lead
    router: Router | None = None
    router_names: tuple[str, ...] = ()
    router_lead: Lead | None = None


def labelled(
    names: Sequence[str],
    labels: Sequence[Labels],
    groups: Sequence[str],
    vectors: FloatArray,
    quality: Quality,
    *,
    budget: int = 1,
    seconds: Mapping[str, float] | None = None,
) -> Labelled:
    """Return labels as arrays; questions that some configuration has no quality for are left out."""
    rows = [[quality.of(of_question[name]) for name in names] for of_question in labels]
    known = np.array([None not in row for row in rows], dtype=bool)
    values = np.array([row for row, there in zip(rows, known, strict=True) if there], dtype=np.float64)
    shares = [[of_question[name].get("cost_tokens", 0.0) / budget for name in names] for of_question in labels]
    return Labelled(
        tuple(names),
        values.reshape(-1, len(names)),
        np.array(groups, dtype=str)[known],
        np.asarray(vectors)[known],
        np.array(shares, dtype=np.float64).reshape(-1, len(names))[known],
        np.array([(seconds or {}).get(name, 0.0) for name in names]),
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
    known = together(known)
    other = unknown_prior(list(known.values()))
    return {name: known.get(name, other) for name in names if name != default}


def estimates(questions: Labelled, known: Mapping[str, Prior]) -> dict[str, Estimate]:
    """Return what is known about the gain of every configuration but the default."""
    groups = questions.groups.tolist()
    return {name: estimate(questions.gains(name), groups, known[name]) for name in questions.names[1:]}


def best(worth: Worth, prices: Prices = FREE) -> int:
    """Return the place of the configuration of highest utility; that of the default, the first, unless one gains."""
    utility = worth.utility(prices)
    place = int(utility.argmax())
    return place if utility[place] > utility[0] + LEAST_GAIN else 0


def choose(questions: Labelled, known: Mapping[str, Prior], prices: Prices = FREE, *, seed: int = 0) -> Chosen:
    """Return the configuration of highest utility, a router where one gains more, and what both gain."""
    found = estimates(questions, known)
    worth = questions.worth(found)
    place = best(worth, prices)
    parts = _folds(questions, seed)
    single = np.zeros(len(questions.qualities), dtype=np.int64)
    for fold in np.unique(parts):
        inside, outside = np.flatnonzero(parts != fold), np.flatnonzero(parts == fold)
        part = questions.rows(inside)
        single[outside] = best(part.worth(estimates(part, known)), prices)
    utility = questions.utility(prices)
    rows = np.arange(len(utility))
    gain = lead(utility[rows, single] - utility[:, 0], questions.groups.tolist(), seed=seed)
    clusters, router_lead = _router_lead(questions, known, prices, parts, single, seed)
    chosen = questions.names[place]
    if clusters is None:
        return Chosen(chosen, found, worth, gain, router_lead=router_lead)
    names, router = fit_router(questions, known, clusters, chosen, seed=seed)
    return Chosen(chosen, found, worth, gain, router, names, router_lead)


def _folds(questions: Labelled, seed: int) -> NDArray[np.int64]:
    return divide([""] * len(questions.groups), questions.groups, [1.0] * FOLDS, seed)


def _router_lead(
    questions: Labelled,
    known: Mapping[str, Prior],
    prices: Prices,
    parts: NDArray[np.int64],
    single: NDArray[np.int64],
    seed: int,
) -> tuple[int | None, Lead | None]:
    """Return how many kinds a router gains most with on questions that took no part, if it does, and its lead."""
    tried: list[tuple[Lead, int]] = []
    distinct = len(np.unique(questions.vectors, axis=0))
    utility = questions.utility(prices)
    for clusters in CLUSTERS:
        if distinct < clusters * MIN_CLUSTER:
            continue
        routed = np.zeros(len(utility))
        for fold in np.unique(parts):
            inside, outside = np.flatnonzero(parts != fold), np.flatnonzero(parts == fold)
            chosen = questions.names[single[outside[0]]]
            names, router = fit_router(questions.rows(inside), known, clusters, chosen, seed=seed)
            places = [route.place for route in router.routes(questions.vectors[outside], prices)]
            columns = [questions.names.index(names[place]) for place in places]
            routed[outside] = utility[outside, columns]
        rows = np.arange(len(utility))
        tried.append((lead(routed - utility[rows, single], questions.groups.tolist(), seed=seed), clusters))
    if not tried:
        return None, None
    found, clusters = max(tried, key=lambda one: one[0].mean)
    # As many looks at the same questions as numbers of kinds were tried.
    if found.mean <= 0 or found.p >= SIGNIFICANT / len(tried):
        return None, found
    return clusters, found
