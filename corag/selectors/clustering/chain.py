"""Exact k-means and bisecting k-means of points that rise together.

Where every coordinate of the points (N of them, D coordinates) rises or stays from one point to the next, some best
partition into clusters consists of runs of neighbours: among all sets of m points, the first m have the smallest mean
in every coordinate at once and the rest the largest, so that no other split into m and N - m points has its means
further apart; and in a best partition every two clusters are a best split of their union. A best partition can
therefore be found by dynamic programming over the ends of runs (Fisher, "On grouping for maximum homogeneity", 1958),
where Lloyd's iterations depend on a random start.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from corag.selectors.clustering.silhouette import IntArray
from corag.types import FloatArray


def run_costs(points: FloatArray) -> FloatArray:
    """Return the squared distances of each run to its mean, `[N + 1, N + 1]`; [i, j] is the run from i to j - 1.

    Infinite where j <= i.
    """
    num_points = len(points)
    # Sums are taken about the mean of all points, which keeps them small and exact.
    centred = points - points.mean(axis=0)
    sums = np.vstack([np.zeros(points.shape[1]), centred.cumsum(axis=0)])
    squares = np.concatenate([[0.0], (centred**2).sum(axis=1).cumsum()])
    lengths = np.arange(num_points + 1)[None] - np.arange(num_points + 1)[:, None]
    spread = squares[None] - squares[:, None]
    shift = ((sums[None] - sums[:, None]) ** 2).sum(axis=2) / np.maximum(lengths, 1)
    # One point has no spread; rounding would give it a little.
    costs = np.where(lengths > 1, np.maximum(spread - shift, 0.0), 0.0)
    return np.where(lengths > 0, costs, np.inf)


def best_runs(points: FloatArray, max_clusters: int) -> list[IntArray]:
    """Return the best partitions into 2, 3, ... `max_clusters` clusters, as labels `[N]` that count from 0.

    Args:
        points: `[N, D]`, every coordinate rising or staying.
        max_clusters: At most N.

    Of equally good partitions the one whose last cluster begins first, then its last but one, and so on.
    """
    costs = run_costs(points)
    num_points = len(points)
    best, starts = costs[0], []
    for _ in range(2, max_clusters + 1):
        totals = best[:, None] + costs
        start = totals.argmin(axis=0)
        best = totals[start, np.arange(num_points + 1)]
        starts.append(start)
    partitions = []
    for count in range(len(starts)):
        begin, end = [], num_points
        for start in reversed(starts[: count + 1]):
            end = int(start[end])
            begin.append(end)
        partitions.append(_labels(begin, num_points))
    return partitions


def bisected_runs(points: FloatArray, max_clusters: int) -> list[IntArray]:
    """Return the partitions into 2, 3, ... `max_clusters` clusters by repeated best bisection, as labels `[N]`.

    Each step splits the cluster with the largest squared distance to its mean (the first of equal ones) where the
    two halves have the least (the earliest of equal places). Steinbach, Karypis and Kumar, "A comparison of document
    clustering techniques" (2000), with an exact 2-means in place of their trials.

    Args:
        points: `[N, D]`, every coordinate rising or staying.
        max_clusters: At most N.
    """
    costs = run_costs(points)
    num_points = len(points)
    bounds = [0, num_points]
    partitions = []
    for _ in range(2, max_clusters + 1):
        # A run of one point has nothing to split, whatever the others cost.
        runs = [(start, end) for start, end in pairwise(bounds) if end - start > 1]
        start, end = max(runs, key=lambda run: (costs[run], -run[0]))
        inner = costs[start, start + 1 : end] + costs[start + 1 : end, end]
        bounds = sorted([*bounds, start + 1 + int(inner.argmin())])
        partitions.append(_labels(bounds[1:-1], num_points))
    return partitions


def _labels(begin: list[int], num_points: int) -> IntArray:
    steps = np.zeros(num_points, dtype=np.int64)
    steps[begin] = 1
    return steps.cumsum()
