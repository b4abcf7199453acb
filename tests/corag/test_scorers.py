"""Scoring functions over candidate indices, and the reranker for tests."""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag import Chunk
from corag.errors import InputError, ScoringError
from corag.memory.cache import BoundedCache
from corag.rerankers.scorers import JoinedTextScorer, MemoScorer, score_together
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
    cache.put({"a": 1, "b": 2})
    assert cache.take(["a"]) == {"a": 1}
    cache.put({"c": 3})
    assert cache.take("abc") == {"a": 1, "c": 3}
    cache.put({"a": 4})
    assert (cache.take("a"), len(cache)) == ({"a": 4}, 2)


def test_cache_of_no_entries():
    cache = BoundedCache(0)
    cache.put({"a": 1})
    assert len(cache) == 0
    with pytest.raises(InputError, match="a cache of -1 entries is impossible"):
        BoundedCache(-1)


def test_cache_is_shared_by_threads():
    cache = BoundedCache(8)

    def work(seed):
        for key in np.random.default_rng(seed).integers(0, 32, 2000).tolist():
            cache.put({key: key})
            assert all(kept == value for kept, value in cache.take(range(32)).items())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(cache) == 8


class Joint(Recorder):
    """A recorder whose orders can share batches; counts them in `batches`."""

    reranker = "recorder"
    batches: ClassVar[list[int]] = []

    @staticmethod
    def score_jointly(requests):
        Joint.batches.append(sum(len(asked) for _, asked in requests))
        return [scorer(asked) for scorer, asked in requests]


@settings(deadline=None)
@given(st.lists(st.tuples(batches, st.booleans(), st.booleans()), max_size=4))
def test_scoring_together_equals_scoring_alone_in_one_batch(worlds):
    Joint.batches.clear()
    recorders = [(Joint if joint else Recorder)(order_matters) for _, order_matters, joint in worlds]
    memos = [MemoScorer(recorder, "recorder", IDS) for recorder in recorders]
    for turn in range(max((len(world[0]) for world in worlds), default=0)):
        asked = [world[0][turn] if turn < len(world[0]) else [] for world in worlds]
        wanted = sum(len(memo.missing(o)) for memo, o, (_, _, joint) in zip(memos, asked, worlds, strict=True) if joint)
        before = len(Joint.batches)
        together = score_together(list(zip(memos, asked, strict=True)))
        assert Joint.batches[before:] == ([wanted] if wanted else [])
        for found, recorder, of_one in zip(together, recorders, asked, strict=True):
            keys = [order if recorder.order_matters else tuple(sorted(order)) for order in of_one]
            assert found.tolist() == [recorder.value(key) for key in keys]
    for recorder in recorders:
        assert len(recorder.asked) == len(set(recorder.asked))


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
