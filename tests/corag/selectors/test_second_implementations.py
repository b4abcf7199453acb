"""The bare algorithms against their plain second implementations, on thousands of random inputs each."""

import numpy as np
import pytest

from corag.selectors.adaptive_k import largest_gap_cutoff
from corag.selectors.car import boundary_cutoff
from corag.selectors.clustering.silhouette import mean_silhouette, pairwise_distances, renumbered
from corag.selectors.edc2 import dynamic_clusters
from tests.corag.selectors.test_adaptive_k import naive_largest_gap
from tests.corag.selectors.test_car import naive_boundary
from tests.corag.selectors.test_edc2 import drawn, naive_clusters
from tests.corag.selectors.test_fixed_selectors import assert_mmr


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def test_largest_gap(rng):
    for _ in range(4000):
        # Half of them on a coarse grid, where equal gaps are common.
        values = rng.random(int(rng.integers(0, 30)))
        values = values.round(1) if rng.random() < 0.5 else values
        head, tail = rng.choice([0.0, 0.1, 0.3], 2).tolist()
        buffer, variant = int(rng.integers(0, 7)), ("code", "paper")[int(rng.integers(2))]
        kept = largest_gap_cutoff(values, head=head, tail=tail, buffer=buffer, variant=variant)
        assert kept == naive_largest_gap(values.tolist(), head, tail, buffer, variant)


def test_boundary_of_car(rng):
    for _ in range(4000):
        number = int(rng.integers(2, 20))
        distances = np.sort(rng.integers(0, 33, number)) / 32
        labels = rng.integers(-1, 4, number)
        assert boundary_cutoff(distances, labels) == naive_boundary(distances.tolist(), labels.tolist())


def test_clusters_of_edc2():
    for seed in range(20_000, 21_000):
        query, vectors = drawn(seed)
        tau, limit = ((1, 1), (1, 20), (3, 20), (2, 5))[seed % 4]
        assert dynamic_clusters(query, vectors, tau=tau, max_size=limit) == naive_clusters(query, vectors, tau, limit)


def test_maximal_marginal_relevance():
    for seed in range(20_000, 22_000):
        assert_mmr(seed, (0.0, 0.3, 0.5, 1.0)[seed % 4])


def naive_silhouette(points, labels):
    """Rousseeuw (1987), one point at a time; a point alone in its cluster counts 0."""
    values = []
    for i, own in enumerate(labels):
        means = {}
        for label in set(labels):
            others = [abs(points[i] - points[j]) for j in range(len(points)) if labels[j] == label and j != i]
            means[label] = sum(others) / len(others) if others else None
        inner, outer = means[own], min(mean for label, mean in means.items() if label != own)
        values.append(0.0 if inner is None or max(inner, outer) == 0 else (outer - inner) / max(inner, outer))
    return sum(values) / len(values)


def test_silhouette(rng):
    compared = 0
    for _ in range(2500):
        number = int(rng.integers(3, 9))
        points = rng.integers(0, 9, number) / 8
        labels = renumbered(rng.integers(0, 3, number))
        if 2 <= labels.max() + 1 < number:
            found = mean_silhouette(pairwise_distances(points[:, None]), labels)
            assert found == pytest.approx(naive_silhouette(points.tolist(), labels.tolist()), abs=1e-12)
            compared += 1
    assert compared > 2000
