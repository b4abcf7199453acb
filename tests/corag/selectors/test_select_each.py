"""Selections of a stream of questions: in order, as they are needed, in bounded memory."""

import gc
import weakref

import numpy as np
import pytest

import corag
from corag.errors import InputError
from corag.selectors.problem import SelectionProblem
from corag.types import Candidate, Chunk
from tests.corag.worlds import essence

WORDS = ("cold", "lake", "of", "Oro", "lies", "below", "a", "mill", "whose", "wheel", "has", "not", "turned", "since")


def pool(number, size=6):
    """Return candidates that no other question has."""
    rng = np.random.default_rng(number)
    texts = [f"{number}.{place} " + " ".join(rng.choice(WORDS, 12)) for place in range(size)]
    return [Candidate(Chunk(f"{number}.{place}", text), 1 / (1 + place)) for place, text in enumerate(texts)]


def asked(count):
    for number in range(count):
        yield f"Which wheel turned {number} times?", pool(number)


@pytest.mark.parametrize(
    "method", ["top-tokens", "corag(reranker=bm25,agent=none)", "corag(unit=sentence,reranker=bm25)"]
)
def test_as_one_by_one(method):
    selector = corag.selector(method)
    selector.queries_at_once = 4
    found = list(selector.select_each(asked(10), 40))
    assert list(map(essence, found)) == [essence(selector.select(*pair, 40)) for pair in asked(10)]
    assert list(selector.select_each([], 40)) == []


def test_questions_are_read_as_selections_are_needed():
    selector = corag.selector("top-k")
    selector.queries_at_once = 3
    read = []
    found = selector.select_each((read.append(pair) or pair for pair in asked(100)), 40)
    assert not read
    next(found)
    assert len(read) == 3
    for _ in range(3):
        next(found)
    assert len(read) == 6


def test_without_candidates():
    found = corag.selector("top-k").select_each([("one?", []), ("two?", pool(2)), ("three?", [])], 40)
    assert [len(one.chunks) > 0 for one in found] == [False, True, False]


@pytest.mark.parametrize("pair", ["ab", ("only a question",), None, ["a question?", []]])
def test_what_is_no_pair_is_refused(pair):
    with pytest.raises(InputError, match="is no tuple of a question and its candidates; zip"):
        next(corag.selector("top-k").select_each([pair], 40))


def test_a_wrong_budget_is_refused_at_once():
    with pytest.raises(InputError, match="budget"):
        corag.selector("top-k").select_each(asked(1), 0)


def test_nothing_of_a_question_is_left_behind(monkeypatch):
    alive = weakref.WeakSet()
    made = SelectionProblem.__init__
    monkeypatch.setattr(SelectionProblem, "__init__", lambda self, *args: made(self, *args) or alive.add(self))
    selector = corag.selector("corag(reranker=bm25,agent=none)")
    selector.queries_at_once = 8
    gc.collect()
    most = 0
    for number, _ in enumerate(selector.select_each(asked(64), 40)):
        if number % 8 == 7:
            gc.collect()
            most = max(most, len(alive))
    assert most <= 1
