"""Scoring functions over candidate indices, and the reranker for tests."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag import Chunk
from corag.errors import InputError, ScoringError
from corag.rerankers.cache import BoundedCache
from corag.rerankers.scorers import JoinedTextScorer, MemoScorer
from corag.testing import TableReranker
from corag.types import Reranker
from tests.corag.selector_worlds import HashReranker

CHUNKS = [Chunk(name, name) for name in "abcd"]
IDS = [chunk.id for chunk in CHUNKS]

orders = st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True).map(tuple)
batches = st.lists(st.lists(orders, max_size=6), max_size=6)


class Recorder:
    """Gives every order the sum of the powers 2**-i of its members, 0.01 more when it is descending."""

    num_truncated = 0

    def __init__(self, order_matters=True):
        self.order_matters = order_matters
        self.asked = []

    def __call__(self, asked):
        self.asked.extend(asked)
        return [self.value(order) for order in asked]

    def value(self, order):
        descending = self.order_matters and order == tuple(sorted(order, reverse=True))
        return sum(2.0**-index for index in order) + 0.01 * descending


class Replying:
    """Replies to any orders with what it is given."""

    order_matters = True
    num_truncated = 5

    def __init__(self, reply):
        self.reply = reply

    def __call__(self, asked):
        return self.reply


@settings(deadline=None)
@given(batches, st.booleans())
def test_memo_equals_the_scorer_and_never_asks_twice(batches, order_matters):
    recorder = Recorder(order_matters)
    memo = MemoScorer(recorder, "recorder", IDS)
    for batch in batches:
        values = memo(batch)
        assert (values.dtype, values.shape) == (np.float64, (len(batch),))
        assert values.tolist() == [recorder.value(order) for order in batch]
    keys = {order if order_matters else frozenset(order) for batch in batches for order in batch}
    assert len(recorder.asked) == len(set(recorder.asked)) == memo.num_computed == len(keys)
    assert memo.order_matters == order_matters


def test_memo_lets_permutations_share_a_value_where_order_does_not_matter():
    recorder = Recorder(order_matters=False)
    memo = MemoScorer(recorder, "recorder", IDS)
    assert memo([(2, 0), (0, 2), (1,)]).tolist() == [1.25, 1.25, 0.5]
    assert memo([(2, 0)]).tolist() == [1.25]
    assert recorder.asked == [(0, 2), (1,)]


def test_memo_asks_for_nothing_when_nothing_is_new():
    memo = MemoScorer(Recorder(), "recorder", IDS)
    assert memo([]).shape == (0,)
    assert memo.num_computed == 0


@pytest.mark.parametrize("reply", [[0.5], [0.5] * 3, [[0.5, 0.5]], 0.5, None, np.zeros((2, 1))])
def test_wrong_number_of_values(reply):
    with pytest.raises(ScoringError, match=r"'odd' returned values of shape \(.*\) for the chunks 'c', 'a' and 1"):
        MemoScorer(Replying(reply), "odd", IDS)([(2, 0), (1,)])


@pytest.mark.parametrize("reply", [["high", "low"], [[1.0], [1.0, 2.0]], {"a": 1.0}])
def test_values_that_are_no_numbers(reply):
    with pytest.raises(ScoringError, match=r"'odd' returned a .* no array of numbers .* for the chunks 'c', 'a'"):
        MemoScorer(Replying(reply), "odd", IDS)([(2, 0), (1,)])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite(value):
    memo = MemoScorer(Replying([0.5, value]), "odd", IDS)
    with pytest.raises(ScoringError, match=rf"reranker 'odd' returned {value} for the chunks 'b'; values have"):
        memo([(2, 0), (1,)])
    assert memo.num_computed == 0


def test_memo_passes_on_what_was_truncated():
    assert MemoScorer(Replying([]), "odd", IDS).num_truncated == 5


@settings(deadline=None)
@given(st.lists(orders, max_size=6))
def test_joined_text_scorer_scores_joined_texts(batch):
    reranker = HashReranker()
    values = JoinedTextScorer(reranker, "who?", CHUNKS)(batch)
    texts = ["\n\n".join("abcd"[index] for index in order) for order in batch]
    assert values.tolist() == reranker.score("who?", texts).tolist()


def test_bounded_cache_forgets_what_was_used_longest_ago():
    cache = BoundedCache(2)
    cache["a"], cache["b"] = 1, 2
    assert cache["a"] == 1
    cache["c"] = 3
    assert ("a" in cache, "b" in cache, "c" in cache, len(cache)) == (True, False, True, 2)
    cache["a"] = 4
    assert (cache["a"], len(cache)) == (4, 2)


def test_cache_of_no_entries():
    cache = BoundedCache(0)
    cache["a"] = 1
    assert len(cache) == 0
    with pytest.raises(InputError, match="a cache of -1 entries is impossible"):
        BoundedCache(-1)


def test_table_reranker():
    reranker = TableReranker({("a",): 0.3, ("b", "a"): 0.9}, default=0.1)
    scorer = reranker.scorer("who?", CHUNKS)
    assert isinstance(reranker, Reranker)
    assert scorer([(0,), (1, 0), (0, 1), (2,)]).tolist() == [0.3, 0.9, 0.1, 0.1]
    assert reranker.score("who?", ["a", "b\n\na", "a\n\nb", "c"]).tolist() == [0.3, 0.9, 0.1, 0.1]
    assert reranker.score("who?", []).dtype == scorer([]).dtype == np.float64
    assert (scorer.order_matters, scorer.num_truncated) == (True, 0)


def test_table_reranker_needs_tuples_of_ids():
    with pytest.raises(InputError, match="values has the key 'ab'; keys are tuples of chunk ids"):
        TableReranker({"ab": 0.9})
