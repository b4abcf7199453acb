"""`thrift`: what a token costs, and that it costs less within a large budget."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.rerankers.evidence.hypotheses import Hypotheses
from corag.rerankers.evidence.values import EvidenceScorer, Weights
from corag.rerankers.scorers import CachedScorer
from corag.selectors.corag.completion import completed
from corag.selectors.corag.search import SearchPlan, search_problems, usual_thrift
from corag.selectors.problem import SelectionProblem
from corag.text.tokens import CallableCounter
from search import SearchConfig

WORDS = CallableCounter(str.split, name="words")
SETS = ((), (0,), (1,), (2,), (0, 1), (1, 2))
CANDIDATES = [
    corag.Candidate(corag.Chunk(name, f"{name} {text}"), similarity)
    for name, text, similarity in (("lake", "is deep", 0.9), ("mill", "burnt", 0.8), ("road", "is long and old", 0.7))
]


def scorer_of(logits, tokens=(200, 60, 120)):
    members = np.array([[index in chosen for index in range(3)] for chosen in SETS])
    hypotheses = Hypotheses(members, np.array(logits, dtype=float))
    weights = Weights(length=0.4, sequence=0.0)
    return EvidenceScorer(hypotheses, np.array(tokens, dtype=float), np.zeros((3, 3)), weights, np.zeros(3, dtype=bool))


class Fixed:
    """Binds one and the same scorer, and counts how often."""

    name, charges_tokens, search_policy = "fixed", True, "beam"

    def __init__(self, scorer):
        self._scorer, self.bound = scorer, 0

    def score(self, query, texts):
        raise AssertionError("orders are scored by the scorer")

    def scorer(self, query, chunks):
        self.bound += 1
        return self._scorer


def test_all_of_a_large_budget_costs_the_same():
    assert [usual_thrift(budget) for budget in (1, 100, 256, 512, 1024)] == [1, 1, 1, 0.5, 0.25]


@given(st.lists(st.floats(-4, 4), min_size=6, max_size=6), st.floats(0, 3), st.floats(0, 3))
def test_the_best_selection_never_grows_with_thrift(logits, first, second):
    scorer = scorer_of(logits)
    orders = [order for size in range(1, 4) for order in itertools.combinations(range(3), size)]
    tokens = np.array([sum((200, 60, 120)[index] for index in order) for order in orders])

    def spent(thrift):
        values = scorer.with_thrift(thrift)(orders)
        return tokens[values >= values.max() - 1e-12]

    low, high = sorted((first, second))
    assert spent(high).min() <= spent(low).max()


def test_a_thrift_of_one_changes_nothing_and_none_charges_nothing():
    scorer = scorer_of([0, 1, 2, 0, 1, 0])
    orders = [(0,), (1,), (0, 1), (0, 1, 2)]
    np.testing.assert_array_equal(scorer.with_thrift(1.0)(orders), scorer(orders))
    rising = scorer.with_thrift(0.0)(orders)
    assert rising[2] > rising[1] and rising[3] > rising[2]
    # The original stays as it was.
    assert scorer([(0, 1, 2)])[0] < rising[3]


def test_a_problem_binds_the_reranker_once_whatever_a_token_costs():
    reranker = Fixed(scorer_of([0, 1, 2, 0, 1, 0]))
    problem = SelectionProblem("lake?", CANDIDATES, WORDS, 1024)
    plain, cheap = (problem.scorer(reranker, thrift=thrift) for thrift in (1.0, 0.25))
    assert problem.scorer(reranker, thrift=0.25) is cheap is not plain
    assert SearchPlan(reranker, None).scorer(problem) is plain
    assert SearchPlan(reranker, None, thrift=None).scorer(problem) is cheap
    assert reranker.bound == 1


def test_values_without_a_price_stay_as_they_are():
    problem = SelectionProblem("lake?", CANDIDATES, WORDS, 1024)
    bm25 = corag.reranker("bm25")
    orders = [(0,), (0, 1, 2)]
    np.testing.assert_array_equal(problem.scorer(bm25, thrift=0.25)(orders), problem.scorer(bm25)(orders))


def test_more_is_chosen_for_less_and_the_trace_tells():
    # Any of the three may be the evidence; 200 tokens at the usual price are not worth the chance that it is the lake.
    found = {}
    for thrift in (0, 1, 3):
        reranker = Fixed(scorer_of([-9, -2.5, 2, -1, -9, -9]))
        selector = corag.selector("corag", reranker=reranker, tokens=WORDS, thrift=thrift)
        found[thrift] = selector.select("lake?", CANDIDATES, 1024)
    assert [set(one.ids) for one in found.values()] == [{"lake", "mill", "road"}, {"mill"}, {"mill"}]
    assert [one.trace.details.get("thrift") for one in found.values()] == [0, None, 3]


def test_the_default_is_cheaper_within_a_large_budget_and_settings_of_ones_own_are_not():
    assert corag.selector("corag").thrift is None
    assert corag.selector("corag", unit="sentence").thrift is None
    for settings in ({"reranker": "minilm-multihop"}, {"policy": "beam"}, {"preset": "paper"}):
        assert corag.selector("corag", **settings).thrift == 1
    made = corag.selector("corag(thrift=0.5)")
    assert made.thrift == 0.5 and corag.selector(str(made)).thrift == 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"thrift": -1}, r"thrift must be from 0 to 100\.0, got -1; 1 is as the reranker was made"),
        ({"thrift": "much"}, "thrift must be a number from 0"),
        ({"thrift": float("nan")}, "thrift must be from 0"),
        ({"thrift": 2, "reranker": "bm25"}, "reranker 'bm25' charges nothing for tokens; leave it out, or set cost_"),
    ],
)
def test_what_is_no_thrift_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        corag.selector("corag", **settings)


@pytest.mark.parametrize(("budget", "chosen"), [(256, 2), (2048, 3)])
def test_a_tree_search_that_is_not_deep_enough_for_a_large_budget_is_completed(budget, chosen):
    # Each of the three may be part of the evidence; two iterations find two of them.
    reranker = Fixed(scorer_of([-9, -9, -9, -9, 1, 1], tokens=(10, 10, 10)))
    problem = SelectionProblem("lake?", CANDIDATES, WORDS, budget)
    plan = SearchPlan(reranker, SearchConfig(policy="paper", iterations=2), thrift=None)
    [found] = search_problems([problem], [plan])
    choice = found.choice()
    assert len(found.result.order) == 2 and len(choice.order) == chosen
    assert choice.trace.get("completed") == (1 if chosen == 3 else None)
    assert choice.value == problem.scorer(reranker, thrift=usual_thrift(budget))([choice.order])[0]


@given(st.integers(1, 12), st.lists(st.floats(-4, 4), min_size=6, max_size=6))
def test_what_completes_passages_keeps_the_budget(budget, logits):
    problem = SelectionProblem("lake?", CANDIDATES, WORDS, budget)
    scorer = CachedScorer(scorer_of(logits).with_thrift(0.0), "fixed", [one.id for one in problem.chunks])
    order = completed(problem, (), scorer)
    assert problem.text_tokens([order])[0] <= budget
    assert sum(len(problem.chunks[index].text.split()) for index in order) <= budget
    # Without a price, what is left out does not fit.
    left = budget - problem.text_tokens([order])[0]
    assert all(problem.costs[index] > left for index in range(3) if index not in order)
