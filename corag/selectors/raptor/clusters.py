"""Soft clusters of embeddings: Gaussian mixtures in few dimensions. Letters: N points, D dimensions.

After RAPTOR (Sarthi et al., "RAPTOR: Recursive abstractive processing for tree-organized retrieval", 2024, section 3):
dimensions are reduced, the Bayesian information criterion chooses the number of components, and a point belongs to
every component that is likely enough.
"""

from __future__ import annotations

import importlib.util
from typing import Literal, cast

import numpy as np

from corag.checks import check_choice
from corag.optional import require
from corag.selectors.clustering import IntArray
from corag.types import FloatArray

Reduction = Literal["auto", "umap", "pca"]

MOST_FITTED = 10_000
"""Of more points than this, so many drawn at random are what mixtures, and UMAP, are fitted to; all are assigned.

It bounds time and memory: a fit of 50 components to 100,000 points takes minutes, and there are 50 fits.
"""


def soft_clusters(
    points: FloatArray,
    *,
    reduction: Reduction = "auto",
    dimensions: int = 10,
    max_components: int = 50,
    threshold: float = 0.1,
    seed: int = 0,
) -> list[tuple[int, ...]]:
    """Return clusters of points; a point is in one or more of them.

    In two steps, as in the paper: clusters of all points, and within each of these again.

    Args:
        points: Embeddings, `[N, D]`.
        reduction: `umap` (extra `umap`), `pca`, or `auto`: UMAP where it is installed.
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
    check_choice("reduction", reduction, Reduction)

    def clusters(part: FloatArray, neighbours: int) -> list[IntArray]:
        num_points = len(part)
        root = int(np.sqrt(num_points))
        number = min(dimensions, root)
        most = min(max_components, root, num_points // (number + 1))
        if most < 2 or len(np.unique(part, axis=0)) <= most:
            return [np.arange(num_points)] if num_points else []
        reduced = reduce_dimensions(part, number, reduction=reduction, neighbours=neighbours, seed=seed)
        mixture = require("sklearn.mixture", "clustering").GaussianMixture
        # Points that coincide must not shrink a component to nothing.
        floor = 1e-4 * float(reduced.var()) + 1e-9
        fitted = reduced[_sample(num_points, seed)]
        fits = [
            mixture(count, covariance_type="tied", reg_covar=floor, max_iter=500, random_state=seed).fit(fitted)
            for count in range(1, most + 1)
        ]
        best = fits[int(np.argmin([fit.bic(fitted) for fit in fits]))]
        probabilities = best.predict_proba(reduced)
        members = probabilities >= threshold
        members[np.arange(num_points), probabilities.argmax(axis=1)] = True
        return [np.flatnonzero(column) for column in members.T if column.any()]

    # UMAP looks at the square root of N neighbours for the whole, and at 10 within a cluster, as the paper does.
    around = max(2, int(np.sqrt(max(len(points) - 1, 1))))
    outer = clusters(points, around)
    return sorted({tuple(part[inner].tolist()) for part in outer for inner in clusters(points[part], 10)})


def reduce_dimensions(
    points: FloatArray, dimensions: int, *, reduction: Reduction = "auto", neighbours: int = 10, seed: int = 0
) -> FloatArray:
    """Return the points `[N, D]`, at least 4, in fewer dimensions, `[N, dimensions]` or as many as there can be.

    PCA is exact; UMAP keeps each point's `neighbours` together. For the rest see `soft_clusters`.
    """
    check_choice("reduction", reduction, Reduction)
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
        if len(points) <= MOST_FITTED:
            return np.asarray(umap.fit_transform(points), dtype=np.float64)
        return np.asarray(umap.fit(points[_sample(len(points), seed)]).transform(points), dtype=np.float64)
    if len(points) > MOST_FITTED:
        # The same directions from D x D numbers, not N x D.
        _, directions = np.linalg.eigh(np.cov(points, rowvar=False))
        return np.asarray((points - points.mean(axis=0)) @ directions[:, ::-1][:, :number], dtype=np.float64)
    left, sizes, _ = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    return cast(FloatArray, left[:, :number] * sizes[:number])


def _sample(number: int, seed: int) -> IntArray | slice:
    """Return which of so many points are fitted, at most `MOST_FITTED`, ascending."""
    if number <= MOST_FITTED:
        return slice(None)
    return np.sort(np.random.default_rng(seed).choice(number, MOST_FITTED, replace=False))
