"""k-means of embeddings, with the number of clusters given or chosen. Letters: N points, D dimensions."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from corag.errors import InputError
from corag.optional import require
from corag.selectors.clustering.silhouette import IntArray, mean_silhouette, pairwise_distances, renumbered
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
    check_k(k, max_k)
    num_different = len(np.unique(points, axis=0)) if len(points) else 0
    if isinstance(k, int):
        return renumbered(_fit(points, min(k, num_different), seed)[0])
    fits = [_fit(points, number, seed) for number in range(1, min(max_k, num_different) + 1)]
    if len(fits) < 3:
        return np.zeros(len(points), dtype=np.int64)
    if k == "elbow":
        best = elbow([inertia for _, inertia in fits])
    else:
        distances = pairwise_distances(points)
        # One cluster has no silhouette, nor have as many clusters as points.
        values = [mean_silhouette(distances, renumbered(labels)) for labels, _ in fits]
        best = int(np.nan_to_num(values, nan=-1.0).argmax())
    return renumbered(fits[best][0])


def elbow(falls: ArrayLike) -> int:
    """Return the place at which falling values lie farthest below the line between their ends; of equals the first.

    Args:
        falls: `[K]`, at least one.
    """
    values = np.asarray(falls, dtype=np.float64)
    return int((np.linspace(values[0], values[-1], len(values)) - values).argmax())


def check_k(k: int | str, max_k: int) -> None:
    """Raise `InputError` for a number of clusters that is none, or an unknown way to choose it."""
    if isinstance(k, str):
        if k not in get_args(ChooseK):
            raise InputError(f"k is {k!r}; it must be a whole number or one of {', '.join(get_args(ChooseK))}")
    elif not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, got {k!r}; 4 is usual")
    if not isinstance(max_k, int) or max_k < 1:
        raise InputError(f"max_k must be a whole number of at least 1, got {max_k!r}; 10 is usual")


def _fit(points: FloatArray, number: int, seed: int) -> tuple[IntArray, float]:
    if number < 2:
        spread: Any = ((points - points.mean(axis=0)) ** 2).sum() if len(points) else 0.0
        return np.zeros(len(points), dtype=np.int64), float(spread)
    found = require("sklearn.cluster", "clustering").KMeans(number, n_init=10, random_state=seed).fit(points)
    return found.labels_.astype(np.int64), float(found.inertia_)
