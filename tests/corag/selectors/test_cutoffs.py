"""Selectors that cut the ranking or cluster it: `adaptive-k`, `car`, `edc2`, each against its algorithm written out."""

import functools
import itertools
import math
import sys
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.errors import MissingExtraError
from corag.selectors.adaptive_k import largest_gap_cutoff
from corag.selectors.car import Method, cluster_cutoff, partitions, renumbered
from corag.selectors.edc2 import dynamic_clusters
from tests.fakes import CHARACTERS, offer

# Few distinct values, so that equal gaps are common.
SIMILARITIES = st.lists(st.integers(-8, 8).map(lambda eighths: eighths / 8), max_size=14)
SHARES = st.sampled_from([0.0, 0.1, 0.3, 0.5])
BUFFERS = st.integers(0, 6)


def naive_largest_gap(similarities, head, tail, buffer):
    ranked = sorted(similarities, reverse=True)
    n = len(ranked)
    start = int((n - 1) * head)
    stop = n - 1 - int((n - 1) * tail)
    gaps = {i: ranked[i] - ranked[i + 1] for i in range(start, stop)}
    if not gaps:
        return n
    last = max(gaps, key=lambda i: (gaps[i], -i))
    return min(n, last + 1 + buffer)


@given(SIMILARITIES, SHARES, SHARES, BUFFERS)
def test_largest_gap_as_in_the_public_code(similarities, head, tail, buffer):
    kept = largest_gap_cutoff(similarities, head=head, tail=tail, buffer=buffer)
    assert kept == naive_largest_gap(similarities, head, tail, buffer)
    assert largest_gap_cutoff(similarities) == naive_largest_gap(similarities, 0.0, 0.1, 5)


def test_the_selector_keeps_what_fits_of_what_stands_before_the_gap():
    pool = offer("aaaa", "bbbb", "cccc", "dddd", similarities=[0.1, 0.9, 0.2, 0.8])
    select = corag.selector("adaptive-k", buffer=0, tokenizer=CHARACTERS).select
    selection = select("a?", pool, 100)
    assert (selection.ids, selection.trace.details["cutoff"]) == (("c1", "c3"), 2)
    assert selection.value == pytest.approx(0.85)
    assert select("a?", pool, 9).ids == ("c1",)
    # What stands before the gap is too long: the best that fits stands in.
    pool = offer("a" * 50, "bbbb", "cc", similarities=[0.9, 0.2, 0.1])
    assert select("a?", pool, 10).ids == ("c1",)


def naive_boundary(normalised, labels):
    """Lines 19 to 28, with documents counted from 1."""
    n = len(normalised)
    delta = dict(enumerate(normalised, start=1))
    cluster = dict(enumerate(labels, start=1))
    begins = [i for i in range(2, n + 1) if cluster[i] != cluster[i - 1]]
    steps = {i: delta[i] - delta[i - 1] for i in begins}
    if not begins or max(steps.values()) == 0:
        return n
    best, best_score = None, -math.inf
    for i in begins:
        score = steps[i] / max(steps.values()) + i / n
        if score > best_score:
            best, best_score = i, score
    return best - 1


def test_the_selector_keeps_what_stands_before_the_boundary():
    texts = ["aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff"]
    pool = offer(*texts, similarities=[0.1, 0.9, 0.12, 0.88, 0.11, 0.89])
    select = corag.selector("car", tokenizer=CHARACTERS).select
    selection = select("a?", pool, 100)
    assert selection.ids == ("c1", "c5", "c3")
    assert selection.trace.details["cutoff"] == 3
    assert selection.trace.details["clusterer"] == {"n_clusters": 2}
    assert select("a?", pool, 9).ids == ("c1",)
    assert corag.selector("car", max_candidates=2, tokenizer=CHARACTERS).select("a?", pool, 100).ids == ("c1", "c5")


def test_distances_without_a_step_have_no_boundary():
    assert [cluster_cutoff(distances).cutoff for distances in ([0.3] * 4, [0.0, 0.5, 0.5, 0.5])] == [4, 1]


RISING = st.lists(st.integers(0, 12), min_size=3, max_size=6).map(lambda values: np.sort(values) / 12)


def chain(heights):
    heights = np.asarray(heights, dtype=float)
    return np.column_stack([np.arange(len(heights)) / (len(heights) - 1), heights])


def squared_error(points, labels):
    return sum(((points[labels == k] - points[labels == k].mean(axis=0)) ** 2).sum() for k in set(labels.tolist()))


@functools.cache
def set_partitions(number, count):
    """Every way to put `number` points into `count` clusters."""
    every = map(np.array, itertools.product(range(count), repeat=number))
    return [labels for labels in every if len(set(labels.tolist())) == count and (renumbered(labels) == labels).all()]


@given(RISING, st.sampled_from(["kmeans", "bisecting-kmeans", "dbscan", "agglomerative"]))
def test_a_cut_is_that_of_the_clustering_with_the_best_silhouette(distances, method):
    silhouette_score = pytest.importorskip("sklearn.metrics").silhouette_score
    found, number = cluster_cutoff(distances, method=method), len(distances)
    if not found.params:
        assert found.cutoff == number
        return
    normalised = (distances - distances[0]) / (distances[-1] - distances[0])
    points = chain(normalised)
    assert found.silhouette == pytest.approx(silhouette_score(points, found.labels), abs=1e-12)
    assert found.cutoff == naive_boundary(normalised.tolist(), found.labels.tolist())
    if method != "kmeans":
        return
    for count in range(2, min(max(2, number // 2), number - 1) + 1):
        every = set_partitions(number, count)
        least = min(squared_error(points, labels) for labels in every)
        best = [labels for labels in every if squared_error(points, labels) <= least + 1e-12]
        assert found.silhouette >= min(silhouette_score(points, labels) for labels in best) - 1e-12
        if count == found.params["n_clusters"]:
            assert any((renumbered(found.labels) == labels).all() for labels in best)


SETTINGS = {
    "kmeans": 4, "bisecting-kmeans": 4, "dbscan": 20, "hdbscan": 11, "optics": 12, "agglomerative": 12, "spectral": 4,
    "birch": 12,
}  # fmt: skip


@pytest.mark.parametrize("method", get_args(Method))
def test_every_clusterer_tries_the_settings_of_the_paper(method):
    found = list(partitions(chain(np.sort(np.random.default_rng(0).random(10))), method))
    assert len(found) == SETTINGS[method]
    assert all(labels.shape == (10,) and labels.dtype == np.int64 for _, labels in found)
    assert {params["threshold"] for params, _ in found if "threshold" in params} <= {0.3, 0.5, 0.7}


def test_both_kinds_of_k_means_are_solved_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    points = chain([0.0, 0.1, 0.5, 0.6, 1.0])
    for method in ("kmeans", "bisecting-kmeans"):
        assert len(list(partitions(points, method))) == 1
        with pytest.raises(MissingExtraError):
            list(partitions(points, method, solver="scikit-learn"))


SIZES = st.sampled_from([(1, 1), (1, 20), (3, 20), (2, 5), (3, 3)])


def cosine(a, b):
    return float(a @ b) / math.sqrt(float(a @ a)) / math.sqrt(float(b @ b))


def naive_clusters(query, vectors, tau, limit):
    left = list(range(len(vectors)))
    clusters, size = [], tau
    while left:
        root = max(left, key=lambda j: (cosine(query, vectors[j]), -j))
        near = sorted(left, key=lambda j: (-math.inf if j == root else -cosine(vectors[root], vectors[j]), j))
        clusters.append(near[:size])
        left = [j for j in left if j not in clusters[-1]]
        size = min(2 * size, limit)
    return clusters


@given(st.integers(0, 10_000), SIZES)
def test_clusters_as_in_algorithm_1(seed, sizes):
    rng = np.random.default_rng(seed)
    query, vectors = rng.normal(size=5), rng.normal(size=(int(rng.integers(0, 30)), 5))
    tau, limit = sizes
    found = dynamic_clusters(query, vectors, tau=tau, max_size=limit)
    assert found == naive_clusters(query, vectors, tau, limit)
    assert sorted(index for cluster in found for index in cluster) == list(range(len(vectors)))
