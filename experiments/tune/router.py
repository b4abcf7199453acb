"""A router: kinds among a user's questions, found by their embeddings, each with a configuration of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from corag.optional import require
from corag.selectors.corag.routing import Kind, Router, Worth, unit_rows
from corag.types import FloatArray
from experiments.tune.configurations import Configuration
from experiments.tune.shrinkage import Prior, estimate, recentred

if TYPE_CHECKING:
    from experiments.tune.choose import Labelled


def fit_router(
    questions: Labelled, known: Mapping[str, Prior], clusters: int, chosen: str, *, seed: int = 0
) -> tuple[tuple[str, ...], Router]:
    """Return a router of so many kinds, and the configurations that it chooses among.

    They are those whose candidates are found as for the one that is chosen for all: a question is routed after its
    candidates were found. What each gains in a kind is shrunk towards what it gains on all questions.
    """
    kmeans = require("sklearn.cluster", "clustering").KMeans(clusters, n_init=4, random_state=seed)
    place = kmeans.fit_predict(questions.vectors)
    centres = unit_rows(kmeans.cluster_centers_)
    groups = questions.groups.tolist()
    whole = {name: estimate(questions.gains(name), groups, known[name]) for name in questions.names[1:]}
    parts = []
    for cluster in range(clusters):
        part = questions.rows(np.flatnonzero(place == cluster))
        found = {
            name: estimate(part.gains(name), part.groups.tolist(), recentred(known[name], whole[name]))
            for name in whole
        }
        parts.append(part.worth(found))
    retrieval = Configuration.parse(chosen).retrieval
    among = [n for n, name in enumerate(questions.names) if Configuration.parse(name).retrieval == retrieval]
    worth = Worth(
        *(np.stack([figure[among] for figure in figures]) for figures in zip(*map(_figures, parts), strict=True))
    )
    unknown = Worth(*(figure[among] for figure in _figures(questions.worth(whole))))
    sizes = np.bincount(place, minlength=clusters).tolist()
    kinds = tuple(Kind(str(n), f"kind {n} of your questions", size) for n, size in enumerate(sizes, start=1))
    router = Router(kinds, worth, unknown, centres)
    return tuple(questions.names[n] for n in among), router


def with_examples(router: Router, vectors: FloatArray, questions: Sequence[str]) -> Router:
    """Return a router whose kinds are told by the question, of those with unit vectors `[n, d]`, nearest to each."""
    kinds = tuple(
        replace(kind, about=f'questions such as "{questions[int((vectors @ centre).argmax())]}"')
        for kind, centre in zip(router.kinds, router.centres, strict=True)
    )
    return replace(router, kinds=kinds)


def _figures(worth: Worth) -> tuple[FloatArray, ...]:
    return worth.quality, worth.budget_share, worth.seconds
