"""`car`: the candidates before the clearest boundary between clusters of similarity.

Xu, Gupta, Aggarwal, Mahadevan and Krishnamachari, "Cluster-based Adaptive Retrieval: Dynamic Context Selection for RAG
Applications", algorithm 1 and section 5.4. Letters: N candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from corag.checks import check_choice, check_count, check_seed
from corag.errors import InputError
from corag.selectors.base import Choice, ComparingSelector, finite_numbers, keep_best, unscored
from corag.selectors.clustering import (
    CLUSTERERS,
    IntArray,
    Method,
    Solver,
    mean_silhouette,
    pairwise_distances,
    partitions,
    renumbered,
)
from corag.selectors.problem import SelectionProblem
from corag.types import FloatArray

Scaling = Literal["unit", "standard"]

FLAT = 1e-9
"""Distances that span no more than this are equal but for rounding: normalised, the rounding would be all."""


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
        method: `kmeans`, `dbscan`, `hdbscan`, `optics`, `agglomerative`, `spectral`, `birch` or `bisecting-kmeans`.
        seed: Of `spectral`, and of `solver="scikit-learn"`.
        scaling: Of the points, which the paper leaves open: rank and distance both from 0 to 1 (`unit`), or both with
            mean 0 and deviation 1 (`standard`).
        solver: Of the two kinds of k-means; see `corag.selectors.clustering.partitions`.

    Returns:
        The cut. All N documents are kept if there is nothing to cut by: fewer than 3 documents, equal distances, no
        setting with at least two clusters and fewer than N, or no step at any boundary.

    Raises:
        InputError: Distances are not finite, not `[N]` or not in ascending order, or a name is unknown.
        MissingExtraError: The method needs scikit-learn, which is not installed.
    """
    _check_settings(method, scaling, solver)
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
    between = pairwise_distances(points)
    best = nothing
    for params, labels in partitions(points, method, seed=seed, solver=solver):
        clusters = renumbered(labels)
        silhouette = mean_silhouette(between, clusters)
        # The first comparison is with NaN.
        if silhouette > best.silhouette or (best is nothing and not np.isnan(silhouette)):
            best = Cutoff(boundary_cutoff(normalised, clusters), labels, params, silhouette)
    return best


def _check_settings(method: str, scaling: str, solver: str) -> None:
    check_choice("method", method, CLUSTERERS)
    check_choice("scaling", scaling, Scaling)
    check_choice("solver", solver, Solver)


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

    Args:
        max_candidates: Only so many of the most similar candidates are clustered and may be kept; the paper has 40.

    Other settings: see `cluster_cutoff` and `ComparingSelector`.
    """

    method: Method = "bisecting-kmeans"
    max_candidates: int = 40
    seed: int = 0
    scaling: Scaling = "unit"
    solver: Solver = "exact"
    name = "car"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_settings(self.method, self.scaling, self.solver)
        check_count("max_candidates", self.max_candidates, "40 is usual")
        check_seed(self.seed)

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = problem.comparable(self._embed)
        distances = 1.0 - problem.relevance[problem.by_relevance[: self.max_candidates]]
        cut = cluster_cutoff(distances, method=self.method, seed=self.seed, scaling=self.scaling, solver=self.solver)
        silhouette = None if np.isnan(cut.silhouette) else cut.silhouette
        trace = {"cutoff": cut.cutoff, "clusterer": dict(cut.params), "silhouette": silhouette}
        return unscored(problem, keep_best(problem, cut.cutoff), trace)
