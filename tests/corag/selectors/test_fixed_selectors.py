"""Nothing, everything, so many tokens, so similar, diverse, best at both ends."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.selectors.packing import marginal_relevance, unit_vectors
from corag.selectors.wrapping import Reorder, best_at_both_ends
from tests.corag.worlds import CHARACTERS, HashReranker, offer

POOL = offer("aaaa", "bbbb", "cccc", "dddd", similarities=[0.4, 0.9, 0.1, 0.5])


def ids(name, budget=100, pool=POOL, **settings):
    return corag.selector(name, tokens=CHARACTERS, **settings).select("a?", pool, budget).ids


def test_none_takes_nothing_and_says_so():
    selection = corag.selector("none").select("a?", POOL, 100)
    assert (selection.ids, selection.text, selection.cost_tokens) == ((), "", 0)
    assert selection.trace.reason == "the selector 'none' never takes anything"


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


def test_mmr_by_hand():
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    similarities = [0.9, 0.8, 0.3]
    assert marginal_relevance(similarities, vectors, relevance_weight=1.0) == (0, 1, 2)
    # After 0: 0.5 * 0.8 - 0.5 * 1 = -0.1 against 0.5 * 0.3 - 0.
    assert marginal_relevance(similarities, vectors) == (0, 2, 1)
    assert marginal_relevance(similarities, vectors, limit=2) == (0, 2)
    assert marginal_relevance(similarities, vectors, costs=np.array([3, 1, 1]), budget=2) == (1, 2)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_mmr_with_loops(seed, weight):
    assert_mmr(seed, weight)


def assert_mmr(seed, weight):
    """Compare with the definition, one candidate and one cosine at a time."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 8))
    vectors = rng.normal(size=(n, 3))
    similarities, costs, budget = rng.random(n), rng.integers(1, 5, n), int(rng.integers(0, 12))
    taken, left = [], budget
    while True:
        best, best_score = None, -math.inf
        for i in range(n):
            if i in taken or costs[i] > left:
                continue
            cosines = [vectors[i] @ vectors[j] / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j]) for j in taken]
            score = weight * similarities[i] - (1 - weight) * max(cosines, default=0.0)
            if score > best_score + 1e-12:
                best, best_score = i, score
        if best is None:
            break
        taken.append(best)
        left -= costs[best]
    found = marginal_relevance(similarities, vectors, relevance_weight=weight, costs=costs, budget=budget)
    assert found == tuple(taken)


@pytest.mark.parametrize(
    ("similarities", "vectors", "message"),
    [
        ([0.5], [[0.0, 0.0]], "vector 0 has length 0; a cosine needs finite lengths above 0"),
        ([0.5, 0.1], [[1.0, 0.0], [math.nan, 0.0]], "vector 1 has length nan"),
        ([0.5, 0.1], [[1.0, 0.0]], r"there are 1 vectors for similarities of the shape \(2,\)"),
        ([0.5], [1.0], r"vectors have the shape \(1,\)"),
        ([math.nan], [[1.0]], "a similarity is not a finite number"),
    ],
)
def test_mmr_with_bad_input(similarities, vectors, message):
    with pytest.raises(InputError, match=message):
        marginal_relevance(similarities, vectors)


def test_best_at_both_ends():
    assert best_at_both_ends([]) == []
    assert best_at_both_ends([1]) == [1]
    assert best_at_both_ends([1, 2]) == [1, 2]
    assert best_at_both_ends([1, 2, 3, 4, 5]) == [1, 3, 5, 4, 2]


def test_reorder_combines_with_any_selector():
    assert ids("reorder") == ("c1", "c0", "c2", "c3")
    assert ids("reorder", selector="full") == ("c0", "c2", "c3", "c1")
    assert ids("reorder", selector="full", by="similarity") == ("c1", "c0", "c2", "c3")
    assert ids("reorder", selector="top-k", k=2) == ("c1", "c3")
    made = corag.selector("naive", reranker=HashReranker(), tokens=CHARACTERS)
    plain = made.select("a?", POOL, 100)
    reordered = Reorder(selector=made, tokens=CHARACTERS).select("a?", POOL, 100)
    assert reordered.ids == tuple(best_at_both_ends(plain.ids))
    assert (reordered.method, reordered.trace.details["selector"]) == ("reorder", "naive")


def test_reorder_advances_many_questions_together():
    selector = Reorder(selector=corag.selector("corag", reranker=HashReranker(), tokens=CHARACTERS), tokens=CHARACTERS)
    together = selector.select_many(["a?", "b?"], [POOL, POOL[:2]], 20)
    assert [s.ids for s in together] == [selector.select(q, p, 20).ids for q, p in (("a?", POOL), ("b?", POOL[:2]))]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("top-tokens", {"num_tokens": 0}, "num_tokens must be a whole number"),
        ("similarity-cutoff", {"minimum": 1.5}, "minimum must be from -1 to 1"),
        ("similarity-cutoff", {"minimum": -0.5, "relative": True}, "minimum must be from 0 to 1"),
        ("similarity-cutoff", {"at_least": -1}, "at_least must be a whole number"),
        ("mmr", {"relevance_weight": 2}, "relevance_weight must be from 0 to 1"),
        ("mmr", {"k": 0}, "k must be a whole number"),
        ("reorder", {"by": "size"}, "by is 'size'; it must be one of order, similarity"),
        ("reorder", {"selector": Reorder(), "k": 3}, "selector 'reorder' is built already; build it with k"),
        ("reorder", {"selector": "best"}, "selector 'best' is unknown"),
    ],
)
def test_settings_out_of_range(name, settings, message):
    with pytest.raises(InputError, match=message):
        corag.selector(name, **settings)


def test_reorder_needs_a_selector_whose_budget_it_can_keep():
    class Foreign:
        name = "foreign"

        def select(self, query, candidates, budget_tokens):
            """Choose nothing."""

    with pytest.raises(InputError, match="selector 'foreign' is no BudgetedSelector"):
        Reorder(selector=Foreign())


def test_unit_vectors():
    assert np.linalg.norm(unit_vectors([[3.0, 4.0]])) == pytest.approx(1)


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
