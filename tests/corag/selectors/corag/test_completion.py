"""What shared titles save is spent on more units, each the one that is worth most, and never more than the budget."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag.rerankers.scorers import CachedScorer
from corag.rerankers.window import Window
from corag.selectors.corag.completion import completed
from corag.selectors.units import UnitProblem
from corag.text.documents import Document, passage
from corag.text.tokens import CallableCounter
from corag.text.units import Unit

WORDS = CallableCounter(str.split, name="words")
LAKE = Document("lake", "It is cold. The lake is deep. Fish live here. Nobody swims.", "The Great Lake Oro")
MILL = Document("mill", "The mill stands still. It burnt down.", "The Old Mill")


class Sums:
    """An order is worth the sum of what its units are worth."""

    order_matters = False
    num_truncated = 0
    calls = 0

    def __init__(self, worth, window=None, policy=None):
        self.worth, self.window, self.policy = np.array(worth, dtype=float), window, policy

    def __call__(self, orders):
        self.calls += 1
        return np.array([self.worth[list(order)].sum() for order in orders])


def problem_of(documents, budget):
    offered = [corag.Candidate(passage(document), 0.5) for document in documents]
    return UnitProblem("lake?", offered, WORDS, budget, Unit.parse("sentence"))


def by_text(problem, worth):
    """Worths of units by a word that they hold; 0 for others."""
    return [next((value for word, value in worth.items() if word in one.text), 0.0) for one in problem.chunks]


def texts(problem, order):
    return {problem.chunks[index].text.split("\n")[1] for index in order}


def index_of(problem, word):
    return next(index for index, one in enumerate(problem.chunks) if word in one.text)


def scorer_of(problem, worth, **window):
    return CachedScorer(Sums(by_text(problem, worth), **window), "sums", [one.id for one in problem.chunks])


def test_the_best_units_that_fit_below_paid_titles_are_added():
    problem = problem_of([LAKE, MILL], 13)
    scorer = scorer_of(problem, {"deep": 3, "Fish": 2, "burnt": 2.5, "cold": -1})
    order = completed(problem, (index_of(problem, "deep"),), scorer)
    # "deep" costs 4 + 4 words; the mill would cost 3 + 3 more, "Fish" 3 and a mark, both of them too much.
    assert texts(problem, order) == {"The lake is deep.", "Fish live here."}
    assert problem.text_tokens([order]) == [11]


def test_nothing_is_added_that_is_worth_nothing_or_does_not_fit():
    problem = problem_of([LAKE], 100)
    order = (index_of(problem, "deep"),)
    assert completed(problem, order, scorer_of(problem, {"deep": 1, "cold": -1})) == order
    tight = problem_of([LAKE], 9)
    assert completed(tight, order, scorer_of(tight, {"deep": 1, "Fish": 1})) == order
    empty = problem_of([], 9)
    assert completed(empty, (), scorer_of(empty, {})) == ()


def test_a_unit_has_to_be_worth_more_than_its_tokens_cost():
    problem = problem_of([LAKE], 100)
    order = (index_of(problem, "deep"),)
    scorer = scorer_of(problem, {"deep": 3, "Fish": 2, "cold": 0.5})
    # Below a title that is paid both cost their three words.
    assert texts(problem, completed(problem, order, scorer, 0.1)) == {
        "The lake is deep.", "Fish live here.", "It is cold."
    }  # fmt: skip
    assert texts(problem, completed(problem, order, scorer, 0.5)) == {"The lake is deep.", "Fish live here."}
    assert completed(problem, order, scorer, 1.0) == order


def test_a_unit_whose_title_the_reranker_cannot_see_is_not_added():
    problem = problem_of([LAKE], 100)
    order = (index_of(problem, "deep"),)
    lengths = np.array([len(one.text.split()) for one in problem.chunks])
    window = Window(tokens=12, separator_tokens=0, lengths=lengths)
    worth = {"deep": 3, "Fish": 2}
    assert completed(problem, order, scorer_of(problem, worth, window=window, policy="forbid")) == order
    assert len(completed(problem, order, scorer_of(problem, worth, window=window, policy="truncate"))) == 2


@settings(deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=6, max_size=6), st.integers(1, 40))
def test_what_is_added_fits_and_raises_the_value(worth, budget):
    problem = problem_of([LAKE, MILL], budget)
    scorer = CachedScorer(Sums(worth), "sums", [one.id for one in problem.chunks])
    start = tuple(index for index in range(6) if problem.costs[index] <= problem.capacity)[:1]
    order = completed(problem, start, scorer)
    assert order[: len(start)] == start and len(set(order)) == len(order)
    assert problem.text_tokens([order])[0] <= budget
    if order != start:
        assert scorer([order])[0] > (scorer([start])[0] if start else -np.inf)


@pytest.mark.slow
def test_corag_does_not_search_twice_where_values_are_cheap():
    offered = [corag.Candidate(passage(document), 0.5) for document in (LAKE, MILL)]
    selector = corag.selector("corag", reranker="minilm-multihop", unit="sentence")
    problem = selector.problem("How deep is the lake?", offered, 24)
    choices = []
    selector._choose = lambda one, choose=selector._choose: choices.append(choose(one)) or choices[-1]
    selection = selector.select_from(problem)
    assert len(choices) == 1 and choices[0].spent
    assert selection.trace.details["completed"] >= 0
    assert selection.cost_tokens <= 24
