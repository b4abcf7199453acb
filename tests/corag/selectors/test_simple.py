"""What takes the ranking as it is, cuts it off or keeps chunks apart: by hand, and against loops."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.selectors.mmr import marginal_relevance
from tests.fakes import CHARACTERS, offer

POOL = offer("aaaa", "bbbb", "cccc", "dddd", similarities=[0.4, 0.9, 0.1, 0.5])


def ids(name, budget=100, pool=POOL, **settings):
    return corag.selector(name, tokenizer=CHARACTERS, **settings).select("a?", pool, budget).ids


def test_full_takes_what_fits_in_the_given_order():
    assert ids("full") == ("c0", "c1", "c2", "c3")
    # 4 + 2 + 4 + 2 + 4 characters.
    assert ids("full", 16) == ("c0", "c1", "c2")


def test_top_tokens_fills_its_own_number_of_tokens():
    assert ids("top-tokens") == ("c1", "c3", "c0", "c2")
    assert ids("top-tokens", num_tokens=10) == ("c1", "c3")
    assert ids("top-tokens", num_tokens=9) == ("c1",)
    assert ids("top-tokens", budget=4, num_tokens=10) == ("c1",)
    pool = offer("aa", "b" * 50, "cc")
    assert ids("top-tokens", pool=pool, num_tokens=10) == ("c0", "c2")
    assert ids("top-tokens", pool=pool, num_tokens=10, skip=False) == ("c0",)
    assert ids("top-tokens", pool=pool, num_tokens=1) == ()


def test_similarity_cutoff():
    assert ids("similarity-cutoff", minimum=0.4) == ("c1", "c3", "c0")
    assert ids("similarity-cutoff", minimum=0.95) == ("c1",)
    assert ids("similarity-cutoff", minimum=0.95, at_least=2) == ("c1", "c3")
    # Half of 0.9.
    assert ids("similarity-cutoff", minimum=0.5, relative=True) == ("c1", "c3")
    assert ids("similarity-cutoff", minimum=0.5, relative=True, pool=offer("a", "b", similarities=[-0.2, -0.1])) == (
        "c1",
    )
    empty = corag.selector("similarity-cutoff", minimum=0.95, at_least=0).select("a?", POOL, 100)
    assert empty.trace.reason == "no candidate has a similarity of at least 0.95; the best has 0.9"


def taken_one_by_one(score, costs, left):
    """Take the first candidate of the largest score beside those taken, as long as one fits."""
    taken = []
    while True:
        scores = {i: score(i, taken) for i in range(len(costs)) if i not in taken and costs[i] <= left}
        best = max(scores, key=lambda i: (scores[i], -i), default=None)
        if best is None:
            return tuple(taken)
        taken.append(best)
        left -= costs[best]


def drawn(seed):
    """Unit vectors, similarities, costs and a budget."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 8))
    vectors = rng.normal(size=(n, 3))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors, unit @ unit.T, rng.uniform(-0.3, 1, n), rng.integers(1, 5, n), int(rng.integers(0, 12))


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_mmr_with_loops(seed, weight):
    vectors, cosines, similarities, costs, budget = drawn(seed)

    def score(i, taken):
        return weight * similarities[i] - (1 - weight) * max((cosines[i][j] for j in taken), default=0.0)

    expected = taken_one_by_one(score, costs, budget)
    assert marginal_relevance(similarities, vectors, costs, budget, relevance_weight=weight) == expected


def test_a_ranking_that_is_not_that_of_the_similarities_decides_what_comes_first():
    ranks = [2, 0, 3, 1]
    pool = [replace(one, rank=rank) for one, rank in zip(POOL, ranks, strict=True)]
    assert ids("top-k", pool=pool, k=3) == ids("top-tokens", pool=pool, num_tokens=16) == ("c1", "c3", "c0")
    assert ids("top-k", pool=pool[::-1], budget=9) == ("c1",)
    # What compares similarities goes by these.
    for name in ("similarity-cutoff", "adaptive-k", "car"):
        assert ids(name, pool=pool) == ids(name)
    # Of a partly ranked pool the similarities are the ranking.
    assert ids("top-k", pool=[replace(pool[0], rank=None), *pool[1:]]) == ids("top-k")
