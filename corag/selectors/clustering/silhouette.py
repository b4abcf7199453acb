"""The silhouette: how much closer points lie to their own cluster than to the next one.

Rousseeuw, "Silhouettes: a graphical aid to the interpretation and validation of cluster analysis" (1987).
Letters: N points, K clusters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from corag.types import FloatArray

IntArray = NDArray[np.int64]


def pairwise_distances(points: FloatArray) -> FloatArray:
    """Return Euclidean distances, `[N, N]`, of points `[N, D]`, for small N."""
    distances: FloatArray = np.linalg.norm(points[:, None] - points[None], axis=2)
    return distances


def renumbered(labels: IntArray) -> IntArray:
    """Return the labels, `[N]`, counted from 0 in order of first appearance: equal partitions become equal arrays."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def mean_silhouette(distances: FloatArray, labels: IntArray) -> float:
    """Return the mean silhouette of a partition, in [-1, 1]; higher is better.

    Args:
        distances: Between all points, `[N, N]`.
        labels: Clusters 0 to K - 1, none empty, `[N]`. A point that is alone in its cluster has silhouette 0.

    Returns:
        The mean; NaN where it is not defined: fewer than 2 clusters, or as many as points.
    """
    num_points, num_clusters = len(labels), int(labels.max(initial=-1)) + 1
    if not 2 <= num_clusters < num_points:
        return float("nan")
    rows = np.arange(num_points)
    members = np.zeros((num_points, num_clusters))
    members[rows, labels] = 1.0
    sizes = members.sum(axis=0)
    sums = distances @ members
    own = sums[rows, labels] / np.maximum(sizes[labels] - 1, 1)
    means = sums / sizes
    means[rows, labels] = np.inf
    nearest = means.min(axis=1)
    larger = np.maximum(own, nearest)
    # Points that all coincide are as close to the next cluster as to their own.
    values = np.divide(nearest - own, larger, out=np.zeros(num_points), where=larger > 0)
    return float(np.where(sizes[labels] > 1, values, 0.0).mean())
