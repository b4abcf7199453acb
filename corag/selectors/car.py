"""`car`: as many candidates as stand before the clearest boundary between clusters of similarity.

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
from corag.selectors.base import Choice, ComparingSelector, keep_best, unscored
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

Scaling = Literal["unit", "standard", "rank", "distance"]
Noise = Literal["cluster", "singletons"]

NOISE = -1

FLAT = 1e-9
"""Distances that span no more than this are equal but for rounding: normalised, the rounding would be all."""


@dataclass(frozen=True, slots=True, eq=False)
class Cutoff:
    """Where the ranking is cut, and why.

    Attributes:
        cutoff: Documents to keep, 0 (of no documents) to N.
        labels: Cluster of each document under the best setting, `[N]`; -1 is noise. All 0 where no setting gave at
            least two clusters.
        params: The best setting of the clusterer; empty where there was none.
        silhouette: Mean silhouette of that clustering, in [-1, 1]; NaN where there was none.
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
    noise: Noise = "cluster",
    solver: Solver = "exact",
) -> Cutoff:
    """Return where to cut a ranking: algorithm 1 of the paper, from its normalisation on.

    Every setting of the clusterer's grid clusters the points (rank, normalised distance); the first with the largest
    mean silhouette counts. Of the ranks i (from 1) where a new cluster begins, the first with the largest
    `g_i / max g + i / N` is the boundary, with g_i the step of the normalised distance there; the documents before
    it are kept.

    Args:
        distances: Distance of each document to the query, nearest first, `[N]`; such as 1 - cosine.
        method: `kmeans`, `dbscan`, `hdbscan`, `optics`, `agglomerative`, `spectral`, `birch` or `bisecting-kmeans`.
        seed: Of the random starts of `kmeans` and `bisecting-kmeans` with `solver="scikit-learn"`.
        scaling: Of the points. `unit`: rank and distance both from 0 to 1. `rank`: the rank as it is, 1 to N, as
            algorithm 1 is written; the rank then drowns the distance. `standard`: both with mean 0 and deviation 1.
            `distance`: the distance alone.
        noise: Documents that a clusterer calls noise are one more cluster (`cluster`), or each its own
            (`singletons`).
        solver: See `corag.selectors.clustering.partitions`.

    Returns:
        The cut. All N documents are kept where nothing tells where to cut: fewer than 3 documents, equal distances,
        no setting with at least two clusters and fewer than N, or no step at any boundary.

    Raises:
        InputError: Distances are not finite, not `[N]` or not in ascending order, or a name is unknown.
        MissingExtraError: The method needs scikit-learn, which is not installed.
    """
    given = _checked(distances)
    _check_names(method, scaling, noise, solver)
    num_documents = len(given)
    nothing = Cutoff(num_documents, np.zeros(num_documents, dtype=np.int64))
    if num_documents < 3 or given[-1] - given[0] <= FLAT * max(1.0, float(np.abs(given).max())):
        return nothing
    normalised = (given - given[0]) / (given[-1] - given[0])
    points = scaled_points(normalised, scaling)
    between = pairwise_distances(points)
    # Noise is one cluster, -1, or each of its points is one: -1, -2, ...
    alone, ranks = noise == "singletons", np.arange(1, num_documents + 1)
    best = nothing
    for params, labels in partitions(points, method, seed=seed, solver=solver):
        clusters = renumbered(np.where(alone & (labels == NOISE), -ranks, labels))
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


def scaled_points(normalised: FloatArray, scaling: Scaling) -> FloatArray:
    """Return the points to be clustered, `[N, 2]` (rank, distance), or `[N, 1]` for the distance alone."""
    num_documents = len(normalised)
    if scaling == "distance":
        return normalised[:, None]
    if scaling == "rank":
        return np.column_stack([np.arange(1.0, num_documents + 1), normalised])
    points = np.column_stack([np.arange(num_documents) / (num_documents - 1), normalised])
    return (points - points.mean(axis=0)) / points.std(axis=0) if scaling == "standard" else points


def _checked(distances: ArrayLike) -> FloatArray:
    given = np.asarray(distances, dtype=np.float64)
    if given.ndim != 1:
        raise InputError(f"distances have the shape {given.shape}; give those of one query, [documents]")
    if not np.isfinite(given).all():
        place = int(np.flatnonzero(~np.isfinite(given))[0])
        raise InputError(f"distance {given[place]} at rank {place} is not a finite number; check the embeddings")
    falls = np.flatnonzero(np.diff(given) < 0)
    if len(falls):
        place = int(falls[0])
        raise InputError(
            f"distance {given[place + 1]:g} at rank {place + 1} follows {given[place]:g}; distances have to stand "
            "nearest first: sort them, and the documents with them"
        )
    return given


def _check_names(method: str, scaling: str, noise: str, solver: str) -> None:
    check_choice("method", method, CLUSTERERS)
    check_choice("scaling", scaling, Scaling)
    check_choice("noise", noise, Noise)
    check_choice("solver", solver, Solver)


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
    noise: Noise = "cluster"
    solver: Solver = "exact"
    name = "car"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_names(self.method, self.scaling, self.noise, self.solver)
        check_count("max_candidates", self.max_candidates, "40 is usual")
        check_seed(self.seed)

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = self._comparable(problem)
        distances = 1.0 - problem.relevance[problem.by_relevance[: self.max_candidates]]
        found = cluster_cutoff(
            distances, method=self.method, seed=self.seed, scaling=self.scaling, noise=self.noise, solver=self.solver
        )
        silhouette = None if np.isnan(found.silhouette) else found.silhouette
        trace = {"cutoff": found.cutoff, "clusterer": dict(found.params), "silhouette": silhouette}
        return unscored(problem, keep_best(problem, found.cutoff), trace)
