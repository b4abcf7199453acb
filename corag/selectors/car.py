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

from corag.checks import check_choice, check_count
from corag.errors import InputError
from corag.models.cached import CachedEmbedder
from corag.selectors.base import BudgetedSelector, Choice, keep_best, unscored
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
from corag.selectors.problem import Problem
from corag.types import Embedder, FloatArray, TokenCounter

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
    seen: dict[bytes, float] = {}
    best = nothing
    for params, labels in partitions(points, method, seed=seed, solver=solver):
        clusters = renumbered(_separate(labels) if noise == "singletons" else labels)
        key = clusters.tobytes()
        # Settings with the same clusters have the same silhouette, and the first of them wins.
        if key not in seen:
            seen[key] = mean_silhouette(between, clusters)
            # The first comparison is with NaN.
            if seen[key] > best.silhouette or (best is nothing and not np.isnan(seen[key])):
                best = Cutoff(boundary_cutoff(normalised, clusters), labels, params, seen[key])
    return best


def boundary_cutoff(normalised: FloatArray, labels: IntArray) -> int:
    """Return the documents before the best boundary (algorithm 1, lines 19 to 29).

    Args:
        normalised: Distances from 0 to 1, nearest first, `[N]`.
        labels: Cluster of each, `[N]`.

    Returns:
        1 to N; N without a boundary, or without a step of the distance at any.
    """
    num_documents = len(normalised)
    # Counted from 0 the first document of a new cluster is also the number of documents before it.
    begins = np.flatnonzero(labels[1:] != labels[:-1]) + 1
    steps = normalised[begins] - normalised[begins - 1]
    if not steps.max(initial=0.0) > 0:
        return num_documents
    scores = steps / steps.max() + (begins + 1) / num_documents
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


def _separate(labels: IntArray) -> IntArray:
    """Return labels in which every noise point is a cluster of its own."""
    separate = labels.copy()
    noise = np.flatnonzero(labels == NOISE)
    separate[noise] = labels.max() + 1 + np.arange(len(noise))
    return separate


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


class Car(BudgetedSelector):
    """The candidates before the clearest boundary between clusters of similarity, as far as they fit.

    Args:
        method: The clusterer; see `cluster_cutoff`.
        max_candidates: Only so many of the most similar candidates are clustered and may be kept; the paper has 40.
        seed: See `cluster_cutoff`.
        scaling: See `cluster_cutoff`.
        noise: See `cluster_cutoff`.
        solver: See `cluster_cutoff`.
        embedder: Computes cosines where the candidates come without similarities; name or object.
        tokens: The answering model's token counter.
    """

    name = "car"

    def __init__(
        self,
        *,
        method: Method = "bisecting-kmeans",
        max_candidates: int = 40,
        seed: int = 0,
        scaling: Scaling = "unit",
        noise: Noise = "cluster",
        solver: Solver = "exact",
        embedder: str | Embedder | None = None,
        tokens: TokenCounter | None = None,
    ) -> None:
        super().__init__(tokens=tokens)
        _check_names(method, scaling, noise, solver)
        check_count("max_candidates", max_candidates, "40 is usual")
        self._method: Method = method
        self._max_candidates = max_candidates
        self._settings: dict[str, Any] = {"seed": seed, "scaling": scaling, "noise": noise, "solver": solver}
        self._embed = None if embedder is None else CachedEmbedder(embedder).vectors

    def _choose(self, problem: Problem) -> Choice:
        problem = problem.comparable(self._embed)
        ranking = problem.ranking[: self._max_candidates]
        distances = 1.0 - problem.relevance[ranking]
        found = cluster_cutoff(distances, method=self._method, **self._settings)
        silhouette = None if np.isnan(found.silhouette) else found.silhouette
        trace = {"cutoff": found.cutoff, "clusterer": dict(found.params), "silhouette": silhouette}
        return unscored(problem, keep_best(problem, found.cutoff), trace)
