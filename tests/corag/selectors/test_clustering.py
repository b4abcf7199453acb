"""Silhouettes, runs and grids against scikit-learn and against every partition there is."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.selectors.clustering import (
    CLUSTERERS,
    best_runs,
    bisected_runs,
    max_clusters,
    mean_silhouette,
    pairwise_distances,
    partitions,
    renumbered,
    run_costs,
)

RISING = st.lists(st.integers(0, 12), min_size=3, max_size=6).map(lambda values: np.sort(values) / 12)


def chain(heights):
    heights = np.asarray(heights, dtype=float)
    return np.column_stack([np.arange(len(heights)) / (len(heights) - 1), heights])


def random_chain(seed, number=24):
    return chain(np.sort(np.random.default_rng(seed).random(number)))


def squared_error(points, labels):
    return sum(((points[labels == k] - points[labels == k].mean(axis=0)) ** 2).sum() for k in set(labels.tolist()))


@functools.cache
def set_partitions(number, count):
    """Every way to put `number` points into `count` clusters."""
    every = map(np.array, itertools.product(range(count), repeat=number))
    return [labels for labels in every if len(set(labels.tolist())) == count and (renumbered(labels) == labels).all()]


@given(RISING)
def test_no_partition_is_better_than_the_best_runs(heights):
    points = chain(heights)
    found = list(best_runs(points, len(points)))
    for count in (2, 3):
        labels = found[count - 2]
        best = min(squared_error(points, other) for other in set_partitions(len(points), count))
        assert len(set(labels.tolist())) == count
        assert squared_error(points, labels) == pytest.approx(best, abs=1e-12)


@given(RISING)
def test_bisection_splits_the_worst_cluster_at_the_best_place(heights):
    points = chain(heights)
    found = [np.zeros(len(points), dtype=int), *bisected_runs(points, len(points))]
    for before, after in itertools.pairwise(found):
        errors = [squared_error(points[before == k], before[before == k]) for k in range(before.max() + 1)]
        splits = [k for k in range(before.max() + 1) if len(set(after[before == k].tolist())) == 2]
        assert len(splits) == 1
        assert errors[splits[0]] == pytest.approx(max(errors), abs=1e-12)
        part = points[before == splits[0]]
        cuts = [squared_error(part, (np.arange(len(part)) >= cut).astype(int)) for cut in range(1, len(part))]
        assert squared_error(part, after[before == splits[0]]) == pytest.approx(min(cuts), abs=1e-12)


def test_cost_of_runs_by_hand():
    costs = run_costs(np.array([[0.0], [1.0], [3.0]]))
    assert costs[0, 1] == costs[1, 2] == 0
    assert costs[0, 2] == pytest.approx(0.5)
    assert costs[0, 3] == pytest.approx(42 / 9)
    assert np.isinf(costs[1, 1])


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_silhouette_equals_scikit_learn(seed):
    silhouette_score = pytest.importorskip("sklearn.metrics").silhouette_score
    rng = np.random.default_rng(seed)
    number = int(rng.integers(3, 30))
    points = rng.random((number, 2)).round(1)
    labels = renumbered(rng.integers(0, rng.integers(2, number), number))
    if 2 <= labels.max() + 1 < number:
        distances = pairwise_distances(points)
        expected = silhouette_score(distances, labels, metric="precomputed")
        assert mean_silhouette(distances, labels) == pytest.approx(expected, abs=1e-12)


def test_silhouette_needs_two_clusters_and_fewer_than_points():
    distances = pairwise_distances(np.array([[0.0], [1.0], [5.0]]))
    assert np.isnan(mean_silhouette(distances, np.array([0, 0, 0])))
    assert np.isnan(mean_silhouette(distances, np.array([0, 1, 2])))
    assert np.isnan(mean_silhouette(distances[:0, :0], np.array([], dtype=int)))
    # 0: 1 - 1/5, 1: 1 - 1/4, alone: 0.
    assert mean_silhouette(distances, np.array([0, 0, 1])) == pytest.approx((0.8 + 0.75) / 3)
    assert mean_silhouette(np.zeros((4, 4)), np.array([0, 0, 1, 1])) == 0


def test_labels_are_renumbered_by_first_appearance():
    assert renumbered(np.array([5, -1, 5, 2, -1])).tolist() == [0, 1, 0, 2, 1]


@pytest.mark.parametrize(("number", "most"), [(3, 2), (4, 2), (5, 2), (6, 3), (40, 20), (41, 20)])
def test_most_clusters(number, most):
    assert max_clusters(number) == most


GRIDS = {
    "kmeans": [{"n_clusters": k} for k in range(2, 6)],
    "bisecting-kmeans": [{"n_clusters": k} for k in range(2, 6)],
    "dbscan": [{"eps": e, "min_samples": m} for e in (0.1, 0.325, 0.55, 0.775, 1.0) for m in (2, 3, 4, 5)],
    "hdbscan": [
        {"min_cluster_size": c, "min_samples": m} for c in (2, 3, 4, 5) for m in (1, 2, 3) if m <= c
    ],
    "optics": [{"min_samples": m, "xi": x} for m in (2, 3, 4, 5) for x in (0.01, 0.05, 0.1)],
    "agglomerative": [
        {"n_clusters": k, "linkage": linkage} for k in range(2, 6) for linkage in ("ward", "average", "complete")
    ],
    "spectral": [{"n_clusters": k, "n_neighbors": 3} for k in range(2, 6)],
    "birch": [{"n_clusters": k, "threshold": t} for k in range(2, 6) for t in (0.3, 0.5, 0.7)],
}  # fmt: skip


def test_grids_are_those_of_the_paper():
    pytest.importorskip("sklearn")
    assert GRIDS.keys() == CLUSTERERS.keys()
    for method, grid in GRIDS.items():
        found = list(partitions(random_chain(0, 10), method))
        assert [params for params, _ in found] == [
            pytest.approx(params) if "eps" in params else params for params in grid
        ]
        assert all(labels.shape == (10,) and labels.dtype == np.int64 for _, labels in found)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3, 9))
@pytest.mark.parametrize("method", CLUSTERERS)
def test_grids_of_few_points(method, number):
    pytest.importorskip("sklearn")
    for points in (random_chain(number, number), chain([0.0] * (number - 1) + [1.0])):
        for solver in ("exact", "scikit-learn"):
            for _, labels in partitions(points, method, solver=solver):
                assert labels.min() >= -1
                assert labels.max() < number


@pytest.mark.parametrize("seed", range(2))
def test_exact_kmeans_is_never_worse_than_scikit_learn(seed):
    pytest.importorskip("sklearn")
    points = random_chain(seed)
    pairs = zip(
        partitions(points, "kmeans"), partitions(points, "kmeans", seed=seed, solver="scikit-learn"), strict=True
    )
    for (params, exact), (other_params, iterated) in pairs:
        assert params == other_params
        assert squared_error(points, exact) <= squared_error(points, iterated) + 1e-12


def test_spectral_clustering_of_a_graph_in_two_pieces():
    pytest.importorskip("scipy")
    points = chain([*np.linspace(0, 0.01, 12), *np.linspace(0.99, 1, 12)])
    (_, labels), *_ = partitions(points * [0.1, 1.0], "spectral")
    assert renumbered(labels).tolist() == [0] * 12 + [1] * 12


@pytest.mark.parametrize(("number", "neighbours"), [(3, 3), (12, 3), (24, 6), (48, 10)])
def test_neighbours_of_a_point(number, neighbours):
    pytest.importorskip("sklearn")
    (setting, _), *_ = partitions(random_chain(0, number), "spectral")
    assert setting["n_neighbors"] == neighbours
