"""Soft clusters of embeddings: Gaussian mixtures in few dimensions. Letters: N points, D dimensions.

After RAPTOR (Sarthi et al., "RAPTOR: Recursive abstractive processing for tree-organized retrieval", 2024, section 3):
dimensions are reduced, the Bayesian information criterion chooses the number of components, and a point belongs to
every component that is likely enough.
"""

from __future__ import annotations

import importlib.util
from typing import Any, Literal, cast, get_args

import numpy as np

from corag.errors import InputError
from corag.optional import require
from corag.types import FloatArray

Reduction = Literal["auto", "umap", "pca"]


def soft_clusters(
    points: FloatArray,
    *,
    reduction: Reduction = "auto",
    dimensions: int = 10,
    max_components: int = 50,
    threshold: float = 0.1,
    seed: int = 0,
) -> list[list[int]]:
    """Return clusters of points; a point is in one or more of them.

    In two steps, as in the paper: clusters of all points, and within each of these again.

    Args:
        points: Embeddings, `[N, D]`.
        reduction: `umap` (needs the extra `umap`), `pca`, or `auto`: UMAP where it is installed.
        dimensions: Dimensions to reduce to; never more than the square root of the points.
        max_components: The most components of a mixture. There are never more than the square root of the points,
            nor so many that a component has fewer points than a mean has numbers, and all share one covariance:
            with as many parameters as points the criterion no longer holds (unbounded, it gives 39 components to
            four groups of 102 points).
        threshold: The least probability with which a point belongs to a cluster; the most probable one always.
        seed: Of the reduction and of the mixtures.

    Returns:
        Indices in each cluster, ascending; clusters by their first point. Equal clusters once.

    Raises:
        MissingExtraError: A library is not installed.
    """
    everything = np.arange(len(points))
    settings: dict[str, Any] = {
        "dimensions": dimensions,
        "max_components": max_components,
        "threshold": threshold,
        "seed": seed,
    }
    found: set[tuple[int, ...]] = set()
    # UMAP looks at the square root of N neighbours for the whole, and at 10 within a cluster, as the paper does.
    around = max(2, int(np.sqrt(max(len(points) - 1, 1))))
    for part in _mixture(points, reduction=reduction, neighbours=around, **settings):
        for inner in _mixture(points[part], reduction=reduction, neighbours=10, **settings):
            found.add(tuple(everything[part][inner].tolist()))
    return [list(cluster) for cluster in sorted(found)]


def _mixture(
    points: FloatArray,
    *,
    reduction: Reduction,
    neighbours: int,
    dimensions: int,
    max_components: int,
    threshold: float,
    seed: int,
) -> list[Any]:
    num_points = len(points)
    root = int(np.sqrt(num_points))
    number = min(dimensions, root)
    most = min(max_components, root, num_points // (number + 1))
    if most < 2 or len(np.unique(points, axis=0)) <= most:
        return [np.arange(num_points)] if num_points else []
    reduced = reduce_dimensions(points, number, reduction=reduction, neighbours=neighbours, seed=seed)
    mixture = require("sklearn.mixture", "clustering").GaussianMixture
    # Points that coincide must not shrink a component to nothing.
    floor = 1e-4 * float(reduced.var()) + 1e-9
    fits = [
        mixture(count, covariance_type="tied", reg_covar=floor, max_iter=500, random_state=seed).fit(reduced)
        for count in range(1, most + 1)
    ]
    best = fits[int(np.argmin([fit.bic(reduced) for fit in fits]))]
    probabilities = best.predict_proba(reduced)
    members = probabilities >= threshold
    members[np.arange(num_points), probabilities.argmax(axis=1)] = True
    return [np.flatnonzero(column) for column in members.T if column.any()]


def reduce_dimensions(
    points: FloatArray, dimensions: int, *, reduction: Reduction = "auto", neighbours: int = 10, seed: int = 0
) -> FloatArray:
    """Return the points in fewer dimensions, `[N, dimensions]` or as many as there can be.

    Args:
        points: `[N, D]`, at least 4 of them.
        dimensions: Dimensions to reduce to.
        reduction: See `soft_clusters`.
        neighbours: Neighbours of a point that UMAP keeps together.
        seed: Of UMAP; PCA is exact.
    """
    check_reduction(reduction)
    if reduction == "auto":
        reduction = "umap" if importlib.util.find_spec("umap") else "pca"
    number = min(dimensions, points.shape[1], len(points) - 2)
    if reduction == "umap":
        umap = require("umap", "umap").UMAP(
            n_components=number,
            n_neighbors=max(2, min(neighbours, len(points) - 1)),
            metric="cosine",
            random_state=seed,
            n_jobs=1,
        )
        return np.asarray(umap.fit_transform(points), dtype=np.float64)
    centred = points - points.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    return cast(FloatArray, left[:, :number] * sizes[:number])


def check_reduction(reduction: str) -> None:
    """Raise `InputError` for an unknown reduction."""
    if reduction not in get_args(Reduction):
        raise InputError(f"reduction is {reduction!r}; it must be one of {', '.join(get_args(Reduction))}")
