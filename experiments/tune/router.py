"""A router: kinds among a user's questions, found by their embeddings, each with a configuration of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from corag.optional import require
from corag.types import FloatArray
from experiments.tune.shrinkage import Prior, best, estimate, recentred

if TYPE_CHECKING:
    from experiments.tune.choose import Labelled


@dataclass(frozen=True)
class Router:
    """Takes the configuration of the nearest centre.

    Attributes:
        centres: Unit vectors, `[k, d]`.
        configurations: The configuration of each.
    """

    centres: FloatArray
    configurations: tuple[str, ...]

    def configurations_of(self, vectors: FloatArray) -> list[str]:
        """Return the configuration for each question, given their embeddings, `[n, d]`."""
        return [self.configurations[place] for place in (vectors @ self.centres.T).argmax(axis=1).tolist()]


def fit_router(questions: Labelled, known: Mapping[str, Prior], clusters: int, *, seed: int = 0) -> Router:
    """Return a router of so many kinds; each one's choice is shrunk towards that of all questions."""
    kmeans = require("sklearn.cluster", "clustering").KMeans(clusters, n_init=4, random_state=seed)
    place = kmeans.fit_predict(questions.vectors)
    centres = np.asarray(kmeans.cluster_centers_, dtype=np.float64)
    whole = {
        name: estimate(questions.gains(name), questions.groups.tolist(), known[name]) for name in questions.names[1:]
    }
    chosen = []
    for cluster in range(clusters):
        part = questions.rows(np.flatnonzero(place == cluster))
        found = {
            name: estimate(part.gains(name), part.groups.tolist(), recentred(known[name], whole[name]))
            for name in whole
        }
        chosen.append(best(found, questions.names[0]))
    return Router(centres / np.linalg.norm(centres, axis=1, keepdims=True), tuple(chosen))
