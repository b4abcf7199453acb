"""`car`: the candidates before the clearest boundary between clusters of similarity.

Xu, Gupta, Aggarwal, Mahadevan and Krishnamachari, "Cluster-based Adaptive Retrieval: Dynamic Context Selection for RAG
Applications", algorithm 1 and section 5.4. Letters: N candidates or points, D coordinates, K clusters.

Of the paper's eight clusterers, k-means and bisecting k-means are solved exactly here; the others are scikit-learn's.
Where every coordinate rises or stays from one point to the next, some best partition into clusters consists of runs of
neighbours: among all sets of m points, the first m have the smallest mean in every coordinate at once and the rest the
largest, so no other split into m and N - m points has its means further apart; and in a best partition every two
clusters are a best split of their union. Dynamic programming over the ends of runs therefore finds a best partition
(Fisher, "On grouping for maximum homogeneity", 1958), where Lloyd's iterations depend on a random start.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.checks import check_choice, check_count, check_seed
from corag.errors import InputError
from corag.optional import require
from corag.selectors.base import Choice, ComparingSelector, checked, finite_numbers, keep_best, unscored
from corag.selectors.problem import SelectionProblem
from corag.types import FloatArray

IntArray = NDArray[np.int64]
Method = Literal[
    "kmeans", "dbscan", "hdbscan", "optics", "agglomerative", "spectral", "birch", "bisecting-kmeans"
]  # fmt: skip
Scaling = Literal["unit", "standard"]
Solver = Literal["exact", "scikit-learn"]

FLAT = 1e-9
"""Distances that span no more than this are equal but for rounding: normalised, the rounding would be all."""


def renumbered(labels: IntArray) -> IntArray:
    """Return the labels, `[N]`, counted from 0 in order of first appearance: equal partitions become equal arrays."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def mean_silhouette(distances: FloatArray, labels: IntArray) -> float:
    """Return the mean silhouette of a partition, in [-1, 1]; higher is better (Rousseeuw, 1987).

    `distances` are between all points, `[N, N]`, and `labels` 0 to K - 1, none empty, `[N]`. A point that is alone in
    its cluster has silhouette 0. NaN with fewer than 2 clusters, or as many as points.
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
    clustering techniques" (2000), with an exact 2-means in place of their trials. On 25 random rankings of 40
    documents it led to the same cut as scikit-learn's best of 10 starts in 24, and as its single start in 12.
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


def partitions(
    points: FloatArray, method: Method, *, seed: int = 0, solver: Solver = "exact"
) -> Iterator[tuple[dict[str, Any], IntArray]]:
    """Yield the settings of a clusterer in the order of the paper's lists, each with its labels, `[N]`; -1 is noise.

    Points are `[N, D]` with N >= 3, every coordinate rising or staying from one point to the next. Up to half of them
    are clusters, as in the paper, at least 2, and fewer than points, for a silhouette. With `solver="scikit-learn"` the
    two kinds of k-means iterate from random starts.

    Raises:
        MissingExtraError: scikit-learn is needed and not installed.
    """
    number = len(points)
    most = min(max(2, number // 2), number - 1)
    if solver == "exact" and method in ("kmeans", "bisecting-kmeans"):
        find = best_runs if method == "kmeans" else bisected_runs
        for count, labels in enumerate(find(points, most), start=2):
            yield {"n_clusters": count}, labels
        return
    # The paper has "dynamically set based on data size" neighbours; here a quarter of the points, from 3 to 10.
    neighbours = min(max(3, number // 4), 10)
    counts, few = range(2, most + 1), [least for least in (2, 3, 4, 5) if least < number]
    # Points that coincide cannot be told apart.
    different = _grid(n_clusters=range(2, min(most, len(np.unique(points, axis=0))) + 1))
    grids: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {
        "kmeans": ("KMeans", {"n_init": 10, "random_state": seed}, different),
        "bisecting-kmeans": ("BisectingKMeans", {"random_state": seed}, different),
        "dbscan": ("DBSCAN", {}, _grid(eps=np.linspace(0.1, 1.0, 5).tolist(), min_samples=few)),
        "hdbscan": ("HDBSCAN", {"copy": True}, [
            grid for grid in _grid(min_cluster_size=(2, 3, 4, 5), min_samples=(1, 2, 3))
            if grid["min_samples"] <= grid["min_cluster_size"] <= number and grid["min_samples"] < number
        ]),
        "optics": ("OPTICS", {}, _grid(min_samples=few, xi=(0.01, 0.05, 0.1))),
        "agglomerative": (
            "AgglomerativeClustering", {}, _grid(n_clusters=counts, linkage=("ward", "average", "complete")),
        ),
        "spectral": (
            "SpectralClustering",
            {"affinity": "nearest_neighbors", "assign_labels": "cluster_qr", "random_state": seed},
            _grid(n_clusters=counts, n_neighbors=(neighbours,)),
        ),
        "birch": ("Birch", {}, _grid(n_clusters=counts, threshold=(0.3, 0.5, 0.7))),
    }  # fmt: skip
    clusterer, fixed, grid = grids[method]
    make = getattr(require("sklearn.cluster", "clustering"), clusterer)
    for setting in grid:
        with warnings.catch_warnings():
            # Fewer clusters than asked for, or a graph in several pieces, are partitions like any other.
            warnings.simplefilter("ignore", UserWarning)
            labels = make(**setting, **fixed).fit_predict(points).astype(np.int64)
        yield setting, labels


def _grid(**axes: Any) -> list[dict[str, Any]]:
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


@dataclass(frozen=True, slots=True, eq=False)
class Cutoff:
    """Where the ranking is cut, and why.

    Attributes:
        cutoff: Documents to keep, 0 (of no documents) to N.
        labels: Cluster of each document under the best setting, `[N]`; -1 is noise. All 0 if no setting gave at least
            two clusters.
        params: The best setting of the clusterer; empty if there was none.
        silhouette: Mean silhouette of that clustering, in [-1, 1]; NaN if there was none.
    """

    cutoff: int
    labels: IntArray
    params: Mapping[str, Any] = field(default_factory=dict)
    silhouette: float = float("nan")


def cluster_cutoff(
    distances: ArrayLike,
    *,
    method: Method = "bisecting-kmeans",
    seed: int = 0,
    scaling: Scaling = "unit",
    solver: Solver = "exact",
) -> Cutoff:
    """Return where to cut a ranking: algorithm 1 of the paper, from its normalisation on.

    Every setting of the clusterer's grid clusters the points (rank, normalised distance), scaled alike: with ranks from
    1 to N, as algorithm 1 is written, the rank drowns the distance. The first setting with the largest mean
    silhouette counts; what a clusterer calls noise is one more cluster. Of the ranks i (from 1) where a new cluster
    begins, the first with the largest `g_i / max g + i / N` is the boundary, with g_i the step of the normalised
    distance there; the documents before it are kept.

    Args:
        distances: Distance of each document to the query, nearest first, `[N]`; such as 1 - cosine.
        method: The clusterer.
        seed: Of `spectral`, and of `solver="scikit-learn"`.
        scaling: Of the points, which the paper leaves open: rank and distance both from 0 to 1 (`unit`), or both with
            mean 0 and deviation 1 (`standard`).
        solver: Of the two kinds of k-means; see `partitions`.

    Returns:
        The cut. All N documents are kept if there is nothing to cut by: fewer than 3 documents, equal distances, no
        setting with at least two clusters and fewer than N, or no step at any boundary.

    Raises:
        InputError: Distances are not finite, not `[N]` or not in ascending order, or a name is unknown.
        MissingExtraError: The method needs scikit-learn, which is not installed.
    """
    for name, value, names in (("method", method, Method), ("scaling", scaling, Scaling), ("solver", solver, Solver)):
        check_choice(name, value, names)
    given = finite_numbers("distances", distances)
    if (np.diff(given) < 0).any():
        raise InputError("distances: expected the nearest first, got some that fall; sort them and their documents")
    num_documents = len(given)
    nothing = Cutoff(num_documents, np.zeros(num_documents, dtype=np.int64))
    if num_documents < 3 or given[-1] - given[0] <= FLAT * max(1.0, float(np.abs(given).max())):
        return nothing
    normalised = (given - given[0]) / (given[-1] - given[0])
    points = np.column_stack([np.arange(num_documents) / (num_documents - 1), normalised])
    if scaling == "standard":
        points = (points - points.mean(axis=0)) / points.std(axis=0)
    between = np.linalg.norm(points[:, None] - points[None], axis=2)
    best = nothing
    for params, labels in partitions(points, method, seed=seed, solver=solver):
        clusters = renumbered(labels)
        silhouette = mean_silhouette(between, clusters)
        # The first comparison is with NaN.
        if silhouette > best.silhouette or (best is nothing and not np.isnan(silhouette)):
            best = Cutoff(boundary_cutoff(normalised, clusters), labels, params, silhouette)
    return best


def boundary_cutoff(normalised: FloatArray, labels: IntArray) -> int:
    """Return the documents before the best boundary (algorithm 1, lines 19 to 29), 1 to N.

    It is N without a boundary, or without a step of the normalised distances, `[N]`, at any.
    """
    # Counted from 0 the first document of a new cluster is also the number of documents before it.
    begins = np.flatnonzero(labels[1:] != labels[:-1]) + 1
    steps = normalised[begins] - normalised[begins - 1]
    if not steps.max(initial=0.0) > 0:
        return len(normalised)
    scores = steps / steps.max() + (begins + 1) / len(normalised)
    return int(begins[scores.argmax()])


@dataclass(kw_only=True, eq=False)
class Car(ComparingSelector):
    """The candidates before the clearest boundary between clusters of similarity, as far as they fit.

    Settings: see `cluster_cutoff`.

    Args:
        max_candidates: Only this many of the most similar candidates are clustered and may be kept; the paper has 40.
    """

    method: Method = checked("bisecting-kmeans", check_choice, names=Method)
    max_candidates: int = checked(40, check_count, hint="typical: 40")
    seed: int = checked(0, check_seed)
    scaling: Scaling = checked("unit", check_choice, names=Scaling)
    solver: Solver = checked("exact", check_choice, names=Solver)
    name = "car"
    compared = ("cosine", "score")

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = self._comparable(problem)
        distances = 1.0 - problem.relevance[problem.by_relevance[: self.max_candidates]]
        cut = cluster_cutoff(distances, method=self.method, seed=self.seed, scaling=self.scaling, solver=self.solver)
        silhouette = None if np.isnan(cut.silhouette) else cut.silhouette
        trace = {"cutoff": cut.cutoff, "clusterer": dict(cut.params), "silhouette": silhouette}
        return unscored(problem, keep_best(problem, cut.cutoff), trace)
