"""Scoring functions over candidate indices: computed once, and checked."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag import Chunk
from corag.errors import ScoringError
from corag.rerankers.scorers import CachedScorer
from tests.fakes import HashReranker, SetReranker

CHUNKS = [Chunk(name, name) for name in "abcd"]
IDS = [chunk.id for chunk in CHUNKS]

orders = st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True).map(tuple)
batches = st.lists(st.lists(orders, max_size=6), max_size=6)


def replying(reply):
    """A scorer that replies to any orders with what it is given."""

    def scorer(orders):
        return reply

    scorer.order_matters = True
    return scorer


@given(batches, st.sampled_from([HashReranker, SetReranker]))
def test_cached_equals_the_scorer_and_never_asks_twice(batches, build):
    reranker = build()
    scorer = reranker.scorer("?", CHUNKS)
    cached, plain = CachedScorer(scorer, "recorder", IDS), build().scorer("?", CHUNKS)
    for batch in batches:
        keys = batch if cached.order_matters else [tuple(sorted(order)) for order in batch]
        values = cached(batch)
        assert (values.dtype, values.shape) == (np.float64, (len(batch),))
        assert values.tolist() == plain(keys).tolist()
    keys = {order if scorer.order_matters else frozenset(order) for batch in batches for order in batch}
    assert len(reranker.asked) == len(set(reranker.asked)) == len(cached.values) == len(keys)


@pytest.mark.parametrize("reply", [[0.5], [[0.5, 0.5]], None])
def test_wrong_number_of_values(reply):
    with pytest.raises(ScoringError, match="'odd'"):
        CachedScorer(replying(reply), "odd", IDS)([(2, 0), (1,)])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite(value):
    cached = CachedScorer(replying([0.5, value]), "odd", IDS)
    with pytest.raises(ScoringError, match=r"'odd'.*'b'"):
        cached([(2, 0), (1,)])
    assert len(cached.values) == 0
