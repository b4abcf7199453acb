"""Policy `bayesian`: what it keeps to, and what it finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.bench.problems import problems as family
from search import SearchConfig, exhaustive, search
from tests.search.worlds import HashScorer, TableScorer

sizes = st.tuples(st.lists(st.integers(1, 6), min_size=1, max_size=14), st.integers(3, 14))


@pytest.mark.slow
@settings(max_examples=40)
@given(sizes, st.integers(0, 10**6), st.sampled_from([(8, 3), (0.25, 0), (1e-7, 0), (3e5, -7e5)]))
def test_shifting_and_scaling_values_changes_nothing(problem, seed, line):
    costs, budget = problem
    factor, shift = line
    plain, scaled = HashScorer(seed), HashScorer(seed)
    config = SearchConfig(policy="bayesian", iterations=5)
    search(costs, plain, budget, config)
    search(costs, lambda orders: [shift + factor * value for value in scaled(orders)], budget, config)
    assert scaled.calls == plain.calls


def test_candidates_that_do_not_fit_change_nothing_but_the_names():
    plain, padded = HashScorer(4), HashScorer(4)
    name = [1, 3, 4, 6, 7]

    def renamed(orders):
        return padded([tuple(name.index(chunk) for chunk in order) for order in orders])

    config = SearchConfig(policy="bayesian")
    few = search([2, 3, 1, 2, 4], plain, 8, config)
    many = search([9, 2, 9, 3, 1, 9, 2, 4], renamed, 8, config)
    assert padded.calls == plain.calls
    assert many.order == tuple(name[chunk] for chunk in few.order)


def test_candidates_beyond_the_thousandth_that_fits_are_not_looked_at():
    scorer = HashScorer(2)
    search([1] * 1300, scorer, 2, SearchConfig(policy="bayesian", iterations=8))
    assert max(max(order) for order in scorer.asked) < 1000


def test_equal_values_end_the_search_once_every_candidate_was_seen():
    scorer = TableScorer({})
    scorer.table = type("Half", (dict,), {"__missing__": lambda self, order: 0.5})()
    for costs, budget in (([1] * 12, 6), ([1] * 60, 5)):
        scorer.calls = []
        search(costs, scorer, budget, SearchConfig(policy="bayesian", iterations=50))
        assert {chunk for order in scorer.asked for chunk in order} == set(range(len(costs)))
        assert len(scorer.calls) < 8


def test_patience_buys_more_orders():
    problem = family(1)[30]
    spent = [
        search(problem.costs, problem, problem.budget, config).num_scored
        for config in (SearchConfig(policy="bayesian", iterations=99, patience=p) for p in (1.0, 4.0, 8.0))
    ]
    assert spent == sorted(spent) and spent[0] < spent[-1]


def test_additive_values_of_a_large_problem_are_found_out():
    # Fifty candidates, twelve of which fit; the best are the dozen worth most.
    worth = np.random.default_rng(0).permutation(50) / 50

    def additive(orders):
        return [worth[list(order)].sum() for order in orders]

    result = search([1] * 50, additive, 12, SearchConfig(policy="bayesian", iterations=15))
    assert result.value > 0.97 * np.sort(worth)[-12:].sum()
    assert result.num_scored == 120


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3000, 3001])
def test_finds_most_optima_of_the_family_with_few_orders(seed):
    config = SearchConfig(policy="bayesian", iterations=100, max_scored=48, max_length=5)
    num_found = num_scored = 0
    for problem in family(seed):
        result = search(problem.costs, problem, problem.budget, config)
        best = exhaustive(problem.costs, problem, problem.budget, problem.max_length)
        num_found += result.value == pytest.approx(best.value, abs=1e-9)
        num_scored += result.num_scored
    assert num_found >= 50
    assert num_scored <= 48 * 60
