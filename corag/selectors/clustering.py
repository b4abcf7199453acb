"""Partitions of few points, and the silhouette that compares them: what CAR and CRAG build on.

Eight clusterers with the settings that CAR tries (Xu, Gupta, Aggarwal, Mahadevan and Krishnamachari, "Cluster-based
Adaptive Retrieval: Dynamic Context Selection for RAG Applications", section 5.4). Two of them, k-means and bisecting
k-means, are solved exactly here; the others are scikit-learn's. Letters: N points, D coordinates, K clusters.

Where every coordinate rises or stays from one point to the next, some best partition into clusters consists of runs of
neighbours: among all sets of m points, the first m have the smallest mean in every coordinate at once and the rest the
largest, so no other split into m and N - m points has its means further apart; and in a best partition every two
clusters are a best split of their union. Dynamic programming over the ends of runs therefore finds a best partition
(Fisher, "On grouping for maximum homogeneity", 1958), where Lloyd's iterations depend on a random start.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from corag.optional import require
from corag.types import FloatArray

IntArray = NDArray[np.int64]

Method = Literal[
    "kmeans", "dbscan", "hdbscan", "optics", "agglomerative", "spectral", "birch", "bisecting-kmeans"
]  # fmt: skip
Solver = Literal["exact", "scikit-learn"]

Partition = tuple[dict[str, Any], IntArray]
"""A setting, and the label of each point under it, `[N]`; -1 is noise."""


def pairwise_distances(points: FloatArray) -> FloatArray:
    """Return Euclidean distances, `[N, N]`, of points `[N, D]`, for small N."""
    distances: FloatArray = np.linalg.norm(points[:, None] - points[None], axis=2)
    return distances


def renumbered(labels: IntArray) -> IntArray:
    """Return the labels, `[N]`, counted from 0 in order of first appearance: equal partitions become equal arrays."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def mean_silhouette(distances: FloatArray, labels: IntArray) -> float:
    """Return the mean silhouette of a partition, in [-1, 1]; higher is better (Rousseeuw, 1987).

    Args:
        distances: Between all points, `[N, N]`.
        labels: Clusters 0 to K - 1, none empty, `[N]`. A point that is alone in its cluster has silhouette 0.

    Returns:
        The mean; NaN with fewer than 2 clusters, or as many as points.
    """
    num_points, num_clusters = len(labels), int(labels.max(initial=-1)) + 1
    if not 2 <= num_clusters < num_points:
        return float("nan")
    rows = np.arange(num_points)
    members = np.eye(num_clusters)[labels]
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


def run_costs(points: FloatArray) -> FloatArray:
    """Return the squared distances of each run to its mean, `[N + 1, N + 1]`; [i, j] is the run from i to j - 1.

    Infinite where j <= i.
    """
    # Sums are taken about the mean of all points, which keeps them small and exact.
    centred = points - points.mean(axis=0)
    sums = np.vstack([np.zeros(points.shape[1]), centred.cumsum(axis=0)])
    squares = np.concatenate([[0.0], (centred**2).sum(axis=1).cumsum()])
    ends = np.arange(len(points) + 1)
    lengths = ends[None] - ends[:, None]
    spread = squares[None] - squares[:, None]
    shift = ((sums[None] - sums[:, None]) ** 2).sum(axis=2) / np.maximum(lengths, 1)
    # One point has no spread; rounding would give it a little.
    costs = np.where(lengths > 1, np.maximum(spread - shift, 0.0), 0.0)
    return np.where(lengths > 0, costs, np.inf)


def best_runs(points: FloatArray, max_clusters: int) -> Iterator[IntArray]:
    """Yield the best partitions of rising points `[N, D]` into 2, 3, ... `max_clusters` clusters, as labels `[N]`.

    Of equally good partitions the one whose last cluster begins first, then its last but one, and so on.
    """
    costs = run_costs(points)
    num_points = len(points)
    best, starts = costs[0], []
    for _ in range(2, max_clusters + 1):
        totals = best[:, None] + costs
        starts.append(totals.argmin(axis=0))
        best = totals.min(axis=0)
        begins = [num_points]
        for start in reversed(starts):
            begins.append(int(start[begins[-1]]))
        yield _labels(begins[1:], num_points)


def bisected_runs(points: FloatArray, max_clusters: int) -> Iterator[IntArray]:
    """Yield the partitions of rising points `[N, D]` into 2, 3, ... `max_clusters` clusters by repeated bisection.

    Each step splits the cluster with the largest squared distance to its mean (the first of equal ones) where the
    two halves have the least (the earliest of equal places). Steinbach, Karypis and Kumar, "A comparison of document
    clustering techniques" (2000), with an exact 2-means in place of their trials.
    """
    costs = run_costs(points)
    bounds = [0, len(points)]
    for _ in range(2, max_clusters + 1):
        # A run of one point has nothing to split, whatever the others cost.
        runs = [(start, end) for start, end in pairwise(bounds) if end - start > 1]
        start, end = max(runs, key=lambda run: (costs[run], -run[0]))
        inner = costs[start, start + 1 : end] + costs[start + 1 : end, end]
        bounds = sorted([*bounds, start + 1 + int(inner.argmin())])
        yield _labels(bounds[1:-1], len(points))


def _labels(begins: list[int], num_points: int) -> IntArray:
    steps = np.zeros(num_points, dtype=np.int64)
    steps[begins] = 1
    return steps.cumsum()


CLUSTERERS: dict[str, str] = {
    "kmeans": "KMeans",
    "dbscan": "DBSCAN",
    "hdbscan": "HDBSCAN",
    "optics": "OPTICS",
    "agglomerative": "AgglomerativeClustering",
    "spectral": "SpectralClustering",
    "birch": "Birch",
    "bisecting-kmeans": "BisectingKMeans",
}
"""Methods, and the scikit-learn class of each."""


def max_clusters(num_points: int) -> int:
    """Return the most clusters to try: half of the points, at least 2, and fewer than points.

    The paper says "integers from 2 up to a maximum determined by half the data size"; a silhouette needs fewer
    clusters than points.
    """
    return min(max(2, num_points // 2), num_points - 1)


def partitions(points: FloatArray, method: Method, *, seed: int = 0, solver: Solver = "exact") -> Iterator[Partition]:
    """Yield the partition of the points under each setting of a clusterer, in the order of the paper's lists.

    Args:
        points: `[N, D]` with N >= 3, every coordinate rising or staying from one point to the next.
        method: The clusterer.
        seed: Of `spectral`, and of the random starts of scikit-learn.
        solver: Of `kmeans` and `bisecting-kmeans`: `exact` finds the optimum of k-means and of each bisection,
            `scikit-learn` iterates from random starts. On 25 random rankings of 40 documents exact bisections led to
            the same cut as scikit-learn's best of 10 starts in 24, and as its single start in 12.

    Raises:
        MissingExtraError: scikit-learn is needed and not installed.
    """
    if solver == "exact" and method in ("kmeans", "bisecting-kmeans"):
        find = best_runs if method == "kmeans" else bisected_runs
        for number, labels in enumerate(find(points, max_clusters(len(points))), start=2):
            yield {"n_clusters": number}, labels
        return
    clusterer = getattr(require("sklearn.cluster", "clustering"), CLUSTERERS[method])
    fixed: dict[str, dict[str, Any]] = {
        "kmeans": {"n_init": 10, "random_state": seed},
        "bisecting-kmeans": {"random_state": seed},
        "hdbscan": {"copy": True},
        "spectral": {"affinity": "nearest_neighbors", "assign_labels": "cluster_qr", "random_state": seed},
    }
    for setting in _settings(points, method):
        with warnings.catch_warnings():
            # Fewer clusters than asked for, or a graph in several pieces, are partitions like any other.
            warnings.simplefilter("ignore", UserWarning)
            labels = clusterer(**setting, **fixed.get(method, {})).fit_predict(points).astype(np.int64)
        yield setting, labels


def _settings(points: FloatArray, method: Method) -> list[dict[str, Any]]:
    num_points = len(points)
    counts = range(2, max_clusters(num_points) + 1)
    if method in ("kmeans", "bisecting-kmeans"):
        # Points that coincide cannot be told apart.
        return [{"n_clusters": k} for k in counts if k <= len(np.unique(points, axis=0))]
    if method == "dbscan":
        radii = np.linspace(0.1, 1.0, 5).tolist()
        return [{"eps": eps, "min_samples": least} for eps in radii for least in (2, 3, 4, 5) if least < num_points]
    if method == "hdbscan":
        pairs = [(size, least) for size in (2, 3, 4, 5) for least in (1, 2, 3) if least <= size <= num_points]
        return [{"min_cluster_size": size, "min_samples": least} for size, least in pairs if least < num_points]
    if method == "optics":
        least_of = (least for least in (2, 3, 4, 5) if least < num_points)
        return [{"min_samples": least, "xi": xi} for least in least_of for xi in (0.01, 0.05, 0.1)]
    if method == "spectral":
        # The paper says "dynamically set based on data size"; here a quarter of the points, from 3 to 10.
        neighbours = min(max(3, num_points // 4), 10)
        return [{"n_clusters": k, "n_neighbors": neighbours} for k in counts]
    name, values = ("threshold", (0.3, 0.5, 0.7)) if method == "birch" else ("linkage", ("ward", "average", "complete"))
    return [{"n_clusters": k, name: value} for k in counts for value in values]
