"""EDC2-RAG against algorithm 1 of the paper written out line by line."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.errors import InputError
from corag.selectors.edc2 import average_clusters, dynamic_clusters, random_clusters

SIZES = st.sampled_from([(1, 1), (1, 20), (3, 20), (2, 5), (3, 3)])


def cosine(a, b):
    return float(a @ b) / math.sqrt(float(a @ a)) / math.sqrt(float(b @ b))


def naive_clusters(query, vectors, tau, limit, extra=0):
    left = list(range(len(vectors)))
    clusters, size = [], tau
    while left:
        root = max(left, key=lambda j: (cosine(query, vectors[j]), -j))
        near = sorted(left, key=lambda j: (-math.inf if j == root else -cosine(vectors[root], vectors[j]), j))
        clusters.append(near[: size + extra])
        left = [j for j in left if j not in clusters[-1]]
        size = min(2 * size, limit)
    return clusters


def drawn(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=5), rng.normal(size=(int(rng.integers(0, 30)), 5))


@given(st.integers(0, 10_000), SIZES)
def test_clusters_as_in_algorithm_1(seed, sizes):
    query, vectors = drawn(seed)
    tau, limit = sizes
    found = dynamic_clusters(query, vectors, tau=tau, max_size=limit)
    assert found == naive_clusters(query, vectors, tau, limit)
    assert sorted(index for cluster in found for index in cluster) == list(range(len(vectors)))
    in_code = dynamic_clusters(query, vectors, tau=tau, max_size=limit, variant="code")
    assert in_code == naive_clusters(query, vectors, tau, limit, extra=1)


def test_sizes_double_up_to_the_limit():
    query, vectors = np.ones(4), np.random.default_rng(0).normal(size=(100, 4))
    assert [len(c) for c in dynamic_clusters(query, vectors)] == [3, 6, 12, 20, 20, 20, 19]
    assert [len(c) for c in dynamic_clusters(query, vectors, variant="code")] == [4, 7, 13, 21, 21, 21, 13]
    assert [len(c) for c in dynamic_clusters(query, vectors[:10], tau=1)] == [1, 2, 4, 3]


def test_by_hand():
    # Degrees from the query: 10, 20, -30, 90, 100. The first root is 0; 1 and 2 are 10 and 40 degrees from it.
    vectors = [(np.cos(a), np.sin(a)) for a in np.deg2rad([10, 20, -30, 90, 100])]
    assert dynamic_clusters([1.0, 0.0], vectors) == [[0, 1, 2], [3, 4]]
    assert dynamic_clusters([1.0, 0.0], vectors, tau=2) == [[0, 1], [2, 3, 4]]


def test_lengths_do_not_matter_and_copies_are_taken_in_order():
    vectors = np.array([[1.0, 0.0], [2.0, 0.0], [0.3, 0.0], [0.0, 1.0]])
    assert dynamic_clusters([5.0, 0.1], vectors, tau=2) == [[0, 1], [2, 3]]


def test_negative_cosines_never_put_a_document_into_two_clusters():
    # All cosines between documents are negative: the public code would take documents of cluster 1 again.
    vectors = [(np.cos(a), np.sin(a)) for a in np.deg2rad([0, 120, 240])]
    for variant in ("paper", "code"):
        found = dynamic_clusters([1.0, 0.0], vectors, tau=1, variant=variant)
        assert sorted(index for cluster in found for index in cluster) == [0, 1, 2]


@given(st.integers(0, 10_000), SIZES)
def test_ablations_have_the_sizes_that_the_paper_gives_them(seed, sizes):
    query, vectors = drawn(seed)
    tau, limit = sizes
    dynamic = dynamic_clusters(query, vectors, tau=tau, max_size=limit)
    average = average_clusters(query, vectors, tau=tau, max_size=limit)
    drawn_ones = random_clusters(query, vectors, tau=tau, max_size=limit, seed=seed)
    assert len(average) == len(dynamic)
    assert [len(c) for c in drawn_ones] == [len(c) for c in dynamic]
    lengths = [len(cluster) for cluster in average]
    assert max(lengths, default=0) - min(lengths, default=0) <= 1
    ranking = sorted(range(len(vectors)), key=lambda j: (-cosine(query, vectors[j]), j))
    assert [index for cluster in average for index in cluster] == ranking
    assert sorted(index for cluster in drawn_ones for index in cluster) == list(range(len(vectors)))
    assert drawn_ones == random_clusters(query, vectors, tau=tau, max_size=limit, seed=seed)


def test_no_documents():
    for clusters in (dynamic_clusters, average_clusters, random_clusters):
        assert clusters([1.0, 0.0], np.zeros((0, 2))) == []
        assert clusters([1.0, 0.0], []) == []


@pytest.mark.parametrize(
    ("query", "vectors", "settings", "message"),
    [
        ([1.0, 0.0], [[1.0, 0.0], [0.0, 0.0]], {}, "vector 1 has length 0"),
        ([1.0, 0.0], [[1.0, math.nan]], {}, "vector 0 has length nan"),
        ([0.0, 0.0], [[1.0, 0.0]], {}, "the query's vector cannot be compared"),
        ([1.0], [[1.0, 0.0]], {}, r"query's vector has the shape \(1,\), the documents' have 2 dimensions"),
        ([1.0], [1.0, 0.0], {}, r"vectors have the shape \(2,\)"),
        ([1.0], [[1.0]], {"tau": 0}, "tau must be a whole number of at least 1"),
        ([1.0], [[1.0]], {"tau": 5, "max_size": 4}, "max_size must be a whole number of at least 5, .* below tau=5"),
        ([1.0], [[1.0]], {"variant": "mine"}, "variant is 'mine'"),
    ],
)
def test_bad_input(query, vectors, settings, message):
    with pytest.raises(InputError, match=message):
        dynamic_clusters(query, vectors, **settings)
