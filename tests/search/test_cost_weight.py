"""What lambda does to the answer."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search import SearchConfig, search
from search.drivers import POLICIES
from tests.search.worlds import HashScorer, problems, scorers

exact = st.sampled_from(
    [
        SearchConfig(policy="paper", iterations=10_000),
        SearchConfig(policy="paper", iterations=10_000, backup="utility", parallel=3),
        SearchConfig(policy="public-code", iterations=10_000),
        SearchConfig(policy="best-first", iterations=10_000),
        SearchConfig(policy="bayesian", iterations=10_000, patience=None),
    ]
)
"""Searches that go on until every order is scored."""


@given(problems, scorers, exact, st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0]), min_size=2))
def test_the_larger_the_weight_the_cheaper_the_answer(problem, scorer, config, weights):
    # For weights a < b with answers x and y, neither better under the other's weight: (b - a)(cost x - cost y) >= 0.
    costs, budget = problem
    found = []
    for weight in sorted(set(weights)):
        given = replace(config, choice="value-minus-cost", cost_weight=weight)
        found.append(search(costs, scorer, budget, given))
        assert found[-1].complete
    assert [one.cost for one in found] == sorted((one.cost for one in found), reverse=True)
    assert [one.value for one in found] == sorted((one.value for one in found), reverse=True)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_picks_by_it(policy):
    worth = {(0,): 0.6, (1,): 0.5, (0, 1): 0.9, (1, 0): 0.8}

    def score(orders):
        return [worth[order] for order in orders]

    def answer(**settings):
        return search([1, 7], score, 8, SearchConfig(policy=policy, iterations=50, **settings)).order

    assert answer() == answer(choice="value-minus-cost", cost_weight=0.0) == (0, 1)
    assert answer(choice="value-minus-cost", cost_weight=0.5) == (0,)


def test_a_heuristic_search_may_break_it():
    # What a weight makes a search look at is not what another weight would have found.
    def costs(seed):
        configs = [
            SearchConfig(policy="beam", beam_width=2, iterations=50, choice="value-minus-cost", cost_weight=weight)
            for weight in (0.0, 0.1, 0.2, 0.3, 0.5)
        ]
        return [search([3, 1, 4, 2], HashScorer(seed), 6, config).cost for config in configs]

    rises = [seed for seed in range(300) if costs(seed) != sorted(costs(seed), reverse=True)]
    assert 0 < len(rises) < 10
