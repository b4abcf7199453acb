"""Eight clusterers with the settings to be tried: the grids of CAR (section 5.4).

Xu, Gupta, Aggarwal, Mahadevan and Krishnamachari, "Cluster-based Adaptive Retrieval: Dynamic Context Selection for
RAG Applications". A clusterer yields one partition for each setting, in the order of the paper's lists. Where
scikit-learn would repeat a computation for every setting (the tree of agglomerative clustering, the distances of
OPTICS, the eigenvectors of spectral clustering), it is done once. Letters: N points, K clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from corag.optional import require
from corag.selectors.clustering.chain import best_runs, bisected_runs
from corag.selectors.clustering.silhouette import IntArray, pairwise_distances
from corag.types import FloatArray

Method = Literal[
    "kmeans", "dbscan", "hdbscan", "optics", "agglomerative", "spectral", "birch", "bisecting-kmeans"
]  # fmt: skip
Solver = Literal["exact", "scikit-learn"]

Partition = tuple[dict[str, Any], IntArray]
"""A setting, and the label of each point under it, `[N]`; -1 is noise."""

EXTRA = "clustering"


def max_clusters(num_points: int) -> int:
    """Return the most clusters to try: half of the points, at least 2, and fewer than points.

    The paper says "integers from 2 up to a maximum determined by half the data size"; a silhouette needs fewer
    clusters than points.
    """
    return min(max(2, num_points // 2), num_points - 1)


def partitions(points: FloatArray, method: Method, *, seed: int = 0, solver: Solver = "exact") -> Iterator[Partition]:
    """Yield the partition of the points under each setting of a clusterer's grid.

    Args:
        points: `[N, D]` with N >= 3, every coordinate rising or staying from one point to the next.
        method: The clusterer.
        seed: Of the random start of `kmeans` and `bisecting-kmeans` with scikit-learn; nothing else is random.
        solver: `exact` finds the optimum of k-means and of each bisection by dynamic programming; `scikit-learn`
            iterates from random starts, as the paper does. No other clusterer depends on it. On 25 random rankings of
            40 documents exact bisections led to the same cut as scikit-learn's best of 10 starts in 24, and as its
            single start in 12.

    Raises:
        MissingExtraError: scikit-learn is needed and not installed.
    """
    if solver == "scikit-learn" and method in _ITERATIVE:
        yield from _ITERATIVE[method](points, seed)
    else:
        yield from CLUSTERERS[method](points)


def _counted(found: list[IntArray]) -> Iterator[Partition]:
    for number, labels in enumerate(found, start=2):
        yield {"n_clusters": number}, labels


def _kmeans(points: FloatArray) -> Iterator[Partition]:
    return _counted(best_runs(points, max_clusters(len(points))))


def _bisecting_kmeans(points: FloatArray) -> Iterator[Partition]:
    return _counted(bisected_runs(points, max_clusters(len(points))))


def _most_different(points: FloatArray) -> int:
    """Return the most clusters to try where points that coincide cannot be told apart."""
    return min(max_clusters(len(points)), len(np.unique(points, axis=0)))


def _iterated_kmeans(points: FloatArray, seed: int) -> Iterator[Partition]:
    cluster = require("sklearn.cluster", EXTRA)
    for number in range(2, _most_different(points) + 1):
        yield (
            {"n_clusters": number},
            cluster.KMeans(number, n_init=10, random_state=seed).fit_predict(points).astype(np.int64),
        )


def _iterated_bisecting_kmeans(points: FloatArray, seed: int) -> Iterator[Partition]:
    cluster = require("sklearn.cluster", EXTRA)
    for number in range(2, _most_different(points) + 1):
        labels = cluster.BisectingKMeans(number, random_state=seed).fit_predict(points)
        yield {"n_clusters": number}, labels.astype(np.int64)


def _dbscan(points: FloatArray) -> Iterator[Partition]:
    dbscan = require("sklearn.cluster", EXTRA).dbscan
    distances = pairwise_distances(points)
    for eps in np.linspace(0.1, 1.0, 5).tolist():
        for min_samples in range(2, min(5, len(points) - 1) + 1):
            _, labels = dbscan(distances, eps=eps, min_samples=min_samples, metric="precomputed")
            yield {"eps": eps, "min_samples": min_samples}, labels.astype(np.int64)


def _hdbscan(points: FloatArray) -> Iterator[Partition]:
    cluster = require("sklearn.cluster", EXTRA)
    num_points = len(points)
    for min_cluster_size in (size for size in (2, 3, 4, 5) if size <= num_points):
        for min_samples in (number for number in (1, 2, 3) if number < num_points and number <= min_cluster_size):
            clusterer = cluster.HDBSCAN(min_cluster_size=min_cluster_size, min_samples=min_samples, copy=True)
            yield (
                {"min_cluster_size": min_cluster_size, "min_samples": min_samples},
                clusterer.fit_predict(points).astype(np.int64),
            )


def _optics(points: FloatArray) -> Iterator[Partition]:
    extract = require("sklearn.cluster", EXTRA).cluster_optics_xi
    distances = pairwise_distances(points)
    for min_samples in (number for number in (2, 3, 4, 5) if number < len(points)):
        ordering, reachability, predecessor = optics_order(distances, min_samples)
        for xi in (0.01, 0.05, 0.1):
            labels, _ = extract(
                reachability=reachability,
                predecessor=predecessor,
                ordering=ordering,
                min_samples=min_samples,
                xi=xi,
            )
            yield {"min_samples": min_samples, "xi": xi}, labels.astype(np.int64)


def optics_order(distances: FloatArray, min_samples: int) -> tuple[IntArray, FloatArray, IntArray]:
    """Return the ordering of OPTICS, and each point's reachability and predecessor.

    Ankerst, Breunig, Kriegel and Sander, "OPTICS: Ordering points to identify the clustering structure" (1999),
    figures 5 to 7, without a largest radius. Equal to `sklearn.cluster.compute_optics_graph`, which asks an index of
    neighbours about each point and takes about a millisecond for it.

    Args:
        distances: Between all points, `[N, N]`.
        min_samples: Points, the point itself among them, within the core distance.

    Returns:
        Indices in the order of the walk, `[N]`; reachabilities, `[N]`, infinite for the first point; predecessors,
        `[N]`, -1 for the first point.
    """
    num_points = len(distances)
    # Rounded as scikit-learn does, so that distances that are equal but for rounding tie.
    decimals = np.finfo(distances.dtype).precision
    core = np.around(np.partition(distances, min_samples - 1, axis=1)[:, min_samples - 1], decimals)
    reachability = np.full(num_points, np.inf)
    predecessor = np.full(num_points, -1, dtype=np.int64)
    waiting = np.ones(num_points, dtype=bool)
    ordering = np.empty(num_points, dtype=np.int64)
    for step in range(num_points):
        point = int(np.where(waiting, reachability, np.inf).argmin()) if step else 0
        waiting[point] = False
        ordering[step] = point
        reached = np.around(np.maximum(distances[point], core[point]), decimals)
        nearer = waiting & (reached < reachability)
        reachability[nearer] = reached[nearer]
        predecessor[nearer] = point
    return ordering, reachability, predecessor


def _agglomerative(points: FloatArray) -> Iterator[Partition]:
    hierarchy = require("scipy.cluster.hierarchy", EXTRA)
    most = max_clusters(len(points))
    cuts = {
        linkage: hierarchy.cut_tree(hierarchy.linkage(points, linkage), list(range(2, most + 1)))
        for linkage in ("ward", "average", "complete")
    }
    for column, number in enumerate(range(2, most + 1)):
        for linkage, labels in cuts.items():
            yield {"n_clusters": number, "linkage": linkage}, labels[:, column].astype(np.int64)


def _spectral(points: FloatArray) -> Iterator[Partition]:
    most = max_clusters(len(points))
    num_neighbours = neighbours_for(len(points))
    vectors = spectral_embedding(points, num_neighbours, most)
    for number in range(2, most + 1):
        yield (
            {"n_clusters": number, "n_neighbors": num_neighbours},
            pivoted_clusters(vectors[:, :number]),
        )


def neighbours_for(num_points: int) -> int:
    """Return how many neighbours, the point itself among them, the graph of spectral clustering has for a point.

    The paper says "dynamically set based on data size" and no more; here a quarter of the points, from 3 to 10.
    """
    return min(max(3, num_points // 4), 10, num_points)


def spectral_embedding(points: FloatArray, num_neighbours: int, num_vectors: int) -> FloatArray:
    """Return the leading eigenvectors of the random walk on the graph of nearest neighbours, `[N, num_vectors]`.

    Ng, Jordan and Weiss, "On spectral clustering" (2001), with the graph and the scaling by degree that
    scikit-learn uses. Equally near neighbours: the one that comes first.
    """
    nearest = np.argsort(pairwise_distances(points), axis=1, kind="stable")[:, :num_neighbours]
    linked = np.zeros((len(points), len(points)))
    np.put_along_axis(linked, nearest, 1.0, axis=1)
    affinity = (linked + linked.T) / 2
    # The link of a point to itself says nothing about clusters.
    np.fill_diagonal(affinity, 0.0)
    scale = 1 / np.sqrt(affinity.sum(axis=1))
    _, vectors = np.linalg.eigh(affinity * scale[:, None] * scale[None])
    embedding: FloatArray = vectors[:, ::-1][:, :num_vectors] * scale[:, None]
    return embedding


def pivoted_clusters(vectors: FloatArray) -> IntArray:
    """Return a label for each row of K eigenvectors `[N, K]`: the one it is most aligned with.

    Damle, Minden and Ying, "Simple, direct and efficient multi-way spectral clustering" (2019): a pivoted QR
    decomposition picks one row for each cluster. Unlike k-means on the rows it has no random start, and it does not
    depend on how equal eigenvectors are turned.
    """
    linalg = require("scipy.linalg", EXTRA)
    num_clusters = vectors.shape[1]
    _, _, pivots = linalg.qr(vectors.T, pivoting=True)
    left, _, right = linalg.svd(vectors[pivots[:num_clusters]].T)
    labels: IntArray = np.abs(vectors @ (left @ right)).argmax(axis=1)
    return labels


def _birch(points: FloatArray) -> Iterator[Partition]:
    cluster = require("sklearn.cluster", EXTRA)
    hierarchy = require("scipy.cluster.hierarchy", EXTRA)
    trees = {}
    for threshold in (0.3, 0.5, 0.7):
        birch = cluster.Birch(threshold=threshold, n_clusters=None).fit(points)
        trees[threshold] = (birch.subcluster_centers_, birch.labels_.astype(np.int64))
    for number in range(2, max_clusters(len(points)) + 1):
        for threshold, (centres, labels) in trees.items():
            # With no more subclusters than clusters asked for, they are the clusters.
            groups = np.arange(len(centres))
            if number < len(centres):
                groups = hierarchy.cut_tree(hierarchy.linkage(centres, "ward"), number)[:, 0]
            yield {"n_clusters": number, "threshold": threshold}, groups[labels].astype(np.int64)


CLUSTERERS: dict[str, Callable[[FloatArray], Iterator[Partition]]] = {
    "kmeans": _kmeans,
    "dbscan": _dbscan,
    "hdbscan": _hdbscan,
    "optics": _optics,
    "agglomerative": _agglomerative,
    "spectral": _spectral,
    "birch": _birch,
    "bisecting-kmeans": _bisecting_kmeans,
}

_ITERATIVE: dict[str, Callable[[FloatArray, int], Iterator[Partition]]] = {
    "kmeans": _iterated_kmeans,
    "bisecting-kmeans": _iterated_bisecting_kmeans,
}
