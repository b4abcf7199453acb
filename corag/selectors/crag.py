"""`crag`: candidates in a few clusters, and a summary of each.

Akesson and Santos, "Clustered Retrieved Augmented Generation (CRAG)", sections 2.3 and 2.4: k-means on the embeddings,
a summary of each cluster, the summaries joined. A cluster beyond the summarizer's window is summarized in parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from corag.checks import check_count, check_seed
from corag.errors import InputError
from corag.optional import require
from corag.selectors.clustering import IntArray, mean_silhouette, pairwise_distances, renumbered
from corag.selectors.problem import SelectionProblem
from corag.selectors.summarizing import SummarizingSelector
from corag.types import FloatArray

ChooseK = Literal["elbow", "silhouette"]


def kmeans(points: FloatArray, k: int | ChooseK = 4, *, max_k: int = 10, seed: int = 0) -> IntArray:
    """Return the cluster of each point, counted from 0 in order of first appearance, `[N]`.

    Args:
        points: `[N, D]`.
        k: How many clusters, at most as many as there are different points; or how to choose among 1 to `max_k`.
            `elbow`: where the squared distance to the centres, as it falls from 1 to `max_k`, lies farthest below the
            straight line between its ends (Satopaa et al., "Finding a kneedle in a haystack", 2011). `silhouette`:
            the largest mean silhouette, from 2 on. Of equal ones the smallest number.
        max_k: The most clusters to choose.
        seed: Of the random starts.

    Raises:
        InputError: k is none of these, or a number below 1.
        MissingExtraError: scikit-learn is not installed.
    """
    _check_k(k, max_k)
    check_seed(seed)
    num_different = len(np.unique(points, axis=0)) if len(points) else 0
    counts = [min(k, num_different)] if isinstance(k, int) else range(1, min(max_k, num_different) + 1)
    if max(counts, default=0) < (2 if isinstance(k, int) else 3):
        return np.zeros(len(points), dtype=np.int64)
    k_means = require("sklearn.cluster", "clustering").KMeans
    fits = [k_means(count, n_init=10, random_state=seed).fit(points) for count in counts]
    partitions = [renumbered(fit.labels_.astype(np.int64)) for fit in fits]
    if k == "elbow":
        return partitions[elbow([fit.inertia_ for fit in fits])]
    if k == "silhouette":
        distances = pairwise_distances(points)
        # One cluster has no silhouette, nor have as many clusters as points.
        values = [mean_silhouette(distances, labels) for labels in partitions]
        return partitions[int(np.nan_to_num(values, nan=-1.0).argmax())]
    return partitions[0]


def elbow(falls: ArrayLike) -> int:
    """Return the place at which falling values `[K]` lie farthest below the line between their ends, the first such."""
    values = np.asarray(falls, dtype=np.float64)
    return int((np.linspace(values[0], values[-1], len(values)) - values).argmax())


def _check_k(k: int | str, max_k: int) -> None:
    if isinstance(k, str) and k not in get_args(ChooseK):
        raise InputError(f"k is {k!r}; it must be a whole number or one of {', '.join(get_args(ChooseK))}")
    if not isinstance(k, str):
        check_count("k", k, "4 is usual")
    check_count("max_k", max_k, "10 is usual")


@dataclass(kw_only=True, eq=False)
class Crag(SummarizingSelector):
    """A summary of each cluster of candidates; the cluster of the most similar candidate first.

    Args:
        k: Clusters: a number (the paper has 4), or `elbow` or `silhouette` to choose from 1 to `max_k`.
        max_k: The most clusters to choose; the paper looked at 1 to 10.
        with_query: The paper's summaries do not know the question, so that they can be made once for all questions.
        seed: Of the random starts of k-means.

    Other settings: see `SummarizingSelector`.
    """

    k: int | ChooseK = 4
    max_k: int = 10
    with_query: bool = False
    seed: int = 0
    name = "crag"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_k(self.k, self.max_k)
        check_seed(self.seed)

    def _groups(self, problem: SelectionProblem) -> list[list[int]]:
        vectors = self._embedder.vectors([chunk.text for chunk in problem.chunks])
        labels = kmeans(vectors, self.k, max_k=self.max_k, seed=self.seed)
        groups = [np.flatnonzero(labels == label).tolist() for label in range(labels.max() + 1)]
        return sorted(groups, key=lambda group: -max(problem.relevance[group]))
