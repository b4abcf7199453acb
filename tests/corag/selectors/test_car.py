"""CAR against algorithm 1 written out line by line, and on rankings with a clear gap."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.selectors.car import boundary_cutoff, cluster_cutoff, scaled_points
from corag.selectors.clustering import CLUSTERERS, partitions
from corag.text.tokens import CallableCounter
from tests.corag.worlds import offer

METHODS = tuple(CLUSTERERS)
DISTANCES = st.lists(st.integers(0, 16).map(lambda part: part / 16), max_size=10).map(sorted)


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


@given(DISTANCES.filter(lambda values: len(values) > 1), st.randoms(use_true_random=False))
def test_boundary_as_in_algorithm_1(distances, random):
    labels = [random.randrange(-1, 3) for _ in distances]
    assert boundary_cutoff(np.array(distances), np.array(labels)) == naive_boundary(distances, labels)


def naive_cutoff(distances, method):
    """Algorithm 1 with scikit-learn's silhouette; the clusterings are tested elsewhere."""
    silhouette_score = pytest.importorskip("sklearn.metrics").silhouette_score
    n = len(distances)
    if n < 3 or max(distances) == min(distances):
        return n, float("nan")
    normalised = [(d - min(distances)) / (max(distances) - min(distances)) for d in distances]
    points = np.array([(i / (n - 1), d) for i, d in enumerate(normalised)])
    best, best_labels = -math.inf, None
    for _, labels in partitions(points, method):
        if 2 <= len(set(labels.tolist())) < n:
            score = silhouette_score(points, labels)
            if score > best + 1e-12:
                best, best_labels = score, labels.tolist()
    return (n, float("nan")) if best_labels is None else (naive_boundary(normalised, best_labels), best)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kmeans", "bisecting-kmeans", "agglomerative", "birch"])
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_cutoff_as_in_algorithm_1(method, seed):
    rng = np.random.default_rng(seed)
    distances = np.sort(rng.random(int(rng.integers(0, 14))))
    found = cluster_cutoff(distances, method=method)
    cutoff, silhouette = naive_cutoff(distances.tolist() or [0.0], method) if len(distances) else (0, math.nan)
    assert found.silhouette == pytest.approx(silhouette, nan_ok=True, abs=1e-9)
    assert found.cutoff == cutoff


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=25)
@given(distances=DISTANCES)
def test_a_cutoff_is_a_number_of_documents(method, distances):
    pytest.importorskip("sklearn")
    found = cluster_cutoff(distances, method=method)
    assert min(1, len(distances)) <= found.cutoff <= len(distances)
    assert found.labels.shape == (len(distances),)
    assert bool(found.params) == (not math.isnan(found.silhouette))
    if found.cutoff < len(distances):
        assert found.labels[found.cutoff] != found.labels[found.cutoff - 1]


def clear_gap(seed):
    rng = np.random.default_rng(seed)
    relevant = int(rng.integers(2, 16))
    return relevant, np.sort(np.r_[rng.uniform(0.2, 0.3, relevant), rng.uniform(0.6, 0.75, 40 - relevant)])


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["exact", "scikit-learn"])
def test_clear_gaps_are_found_with_scaled_ranks_and_not_with_raw_ones(solver):
    pytest.importorskip("sklearn")
    rankings = [clear_gap(seed) for seed in range(50 if solver == "exact" else 2)]

    def hits(scaling):
        return sum(
            cluster_cutoff(distances, method="kmeans", scaling=scaling, solver=solver).cutoff == relevant
            for relevant, distances in rankings
        )

    assert hits("unit") == hits("standard") == hits("distance") == len(rankings)
    assert hits("rank") < len(rankings) / 2


@pytest.mark.parametrize("method", METHODS)
def test_every_clusterer_finds_a_wide_gap(method):
    pytest.importorskip("sklearn")
    distances = [0.10, 0.11, 0.12, 0.13, 0.14, 0.15, *np.linspace(0.85, 0.9, 6)]
    assert cluster_cutoff(distances, method=method).cutoff == 6


@pytest.mark.parametrize(
    ("distances", "cutoff"), [([], 0), ([0.3], 1), ([0.1, 0.9], 2), ([0.4] * 5, 5), ([1e9, 1e9, 1e9 + 1e-7], 3)]
)
def test_nothing_to_cut_keeps_everything(distances, cutoff):
    found = cluster_cutoff(distances)
    assert (found.cutoff, found.params, found.labels.tolist()) == (cutoff, {}, [0] * cutoff)
    assert math.isnan(found.silhouette)


@pytest.mark.parametrize("solver", ["exact", "scikit-learn"])
@pytest.mark.parametrize("method", ["kmeans", "bisecting-kmeans"])
def test_equal_distances_without_ranks(method, solver):
    pytest.importorskip("sklearn")
    found = cluster_cutoff([0.1] * 4 + [0.9] * 6, method=method, solver=solver, scaling="distance")
    assert (found.cutoff, found.silhouette) == (4, 1.0)


def test_three_documents():
    found = cluster_cutoff([0.1, 0.2, 0.9])
    assert (found.cutoff, found.params, found.labels.tolist()) == (2, {"n_clusters": 2}, [0, 0, 1])


def test_two_boundaries_with_equal_steps_the_later_has_the_better_score():
    labels = np.array([0, 0, 1, 1, 2, 2])
    assert boundary_cutoff(np.array([0.0, 0.0, 0.5, 0.5, 1.0, 1.0]), labels) == 4
    # 1 + 3/6 = 1.5 for the wide one, 0.25 + 5/6 < 1.5 for the other.
    assert boundary_cutoff(np.array([0.0, 0.0, 0.8, 0.8, 1.0, 1.0]), labels) == 2


def test_noise_is_one_more_cluster_or_many():
    pytest.importorskip("sklearn")
    # Two stragglers that no other document is near to.
    distances = [*np.linspace(0, 0.1, 38), 0.5, 1.0]
    as_cluster = cluster_cutoff(distances, method="dbscan")
    as_singletons = cluster_cutoff(distances, method="dbscan", noise="singletons")
    assert as_cluster.labels.tolist() == [0] * 38 + [-1] * 2 == as_singletons.labels.tolist()
    assert as_cluster.cutoff == 38
    # A document that is alone has silhouette 0.
    assert as_singletons.silhouette < as_cluster.silhouette


def test_scalings():
    normalised = np.array([0.0, 0.2, 1.0])
    assert scaled_points(normalised, "unit").tolist() == [[0.0, 0.0], [0.5, 0.2], [1.0, 1.0]]
    assert scaled_points(normalised, "rank").tolist() == [[1.0, 0.0], [2.0, 0.2], [3.0, 1.0]]
    assert scaled_points(normalised, "distance").tolist() == [[0.0], [0.2], [1.0]]
    standard = scaled_points(normalised, "standard")
    assert standard.mean(axis=0) == pytest.approx(0)
    assert standard.std(axis=0) == pytest.approx(1)


@pytest.mark.slow
def test_random_starts_repeat_with_a_seed():
    pytest.importorskip("sklearn")
    distances = np.sort(np.random.default_rng(0).random(20))
    for method in ("kmeans", "bisecting-kmeans"):
        one, two = (cluster_cutoff(distances, method=method, solver="scikit-learn", seed=3) for _ in range(2))
        assert (one.cutoff, one.labels.tolist()) == (two.cutoff, two.labels.tolist())


@pytest.mark.parametrize(
    ("distances", "named", "message"),
    [
        ([0.1, math.nan, 0.3], {}, "distance nan at rank 1 is not a finite number"),
        ([0.1, 0.3, 0.2], {}, "distance 0.2 at rank 2 follows 0.3; distances have to stand nearest first"),
        ([[0.1, 0.3]], {}, r"shape \(1, 2\); give those of one query"),
        ([0.1], {"method": "means"}, "method is 'means'; it must be one of kmeans, dbscan"),
        ([0.1], {"scaling": "log"}, "scaling is 'log'; it must be one of unit"),
        ([0.1], {"noise": "drop"}, "noise is 'drop'; it must be one of cluster, singletons"),
        ([0.1], {"solver": "guess"}, "solver is 'guess'; it must be one of exact, scikit-learn"),
    ],
)
def test_bad_input(distances, named, message):
    with pytest.raises(InputError, match=message):
        cluster_cutoff(distances, **named)


def test_the_selector_keeps_what_stands_before_the_boundary():
    characters = CallableCounter(len, name="characters")
    texts = ["aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff"]
    pool = offer(*texts, similarities=[0.1, 0.9, 0.12, 0.88, 0.11, 0.89])
    select = corag.selector("car", tokens=characters).select
    selection = select("a?", pool, 100)
    assert selection.ids == ("c1", "c5", "c3")
    assert selection.trace.details["cutoff"] == 3
    assert selection.trace.details["clusterer"] == {"n_clusters": 2}
    assert select("a?", pool, 9).ids == ("c1",)
    assert corag.selector("car", max_candidates=2, tokens=characters).select("a?", pool, 100).ids == ("c1", "c5")
    for setting in ({"method": "x"}, {"max_candidates": 0}):
        with pytest.raises(InputError, match=next(iter(setting))):
            corag.selector("car", **setting)
