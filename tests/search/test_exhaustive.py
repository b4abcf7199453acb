from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search import SearchError, count_orders, exhaustive
from tests.search.worlds import HashScorer, problems, scorers


def all_orders(costs, budget, max_length, ordered):
    arrange = permutations if ordered else combinations
    return [
        order
        for length in range(1, max_length + 1)
        for order in arrange(range(len(costs)), length)
        if sum(costs[chunk] for chunk in order) <= budget
    ]


@given(problems, scorers, st.integers(1, 6), st.booleans(), st.integers(1, 50))
def test_equals_brute_force(problem, scorer, max_length, ordered, batch_size):
    costs, budget = problem
    result = exhaustive(costs, scorer, budget, max_length, ordered=ordered, batch_size=batch_size)
    expected = all_orders(costs, budget, max_length, ordered)
    assert sorted(scorer.asked) == sorted(expected)
    assert result.num_scored == len(expected)
    assert result.num_calls == len(result.incumbents) == -(-len(expected) // batch_size)
    assert all(len(call) <= batch_size for call in scorer.calls)
    assert result.tree is None
    assert result.complete

    def rank(order):
        return -scorer.value(order), sum(costs[chunk] for chunk in order), len(order), order

    best = min(expected, key=rank, default=())
    assert result.order == best
    assert result.value == result.utility == (scorer.value(best) if best else 0.0)
    assert result.cost == sum(costs[chunk] for chunk in best)
    assert not result.incumbents or result.incumbents[-1] == best


@given(problems, st.integers(1, 6), st.booleans(), st.none() | st.integers(0, 400))
def test_count_equals_brute_force(problem, max_length, ordered, limit):
    costs, budget = problem
    num_orders = len(all_orders(costs, budget, max_length, ordered))
    expected = num_orders if limit is None else min(num_orders, limit + 1)
    assert count_orders(costs, budget, max_length, ordered=ordered, limit=limit) == expected


def test_count_by_hand():
    # Ten candidates that all fit: 10 + 10*9 + 10*9*8 orders, 10 + 45 + 120 sets.
    assert count_orders([1] * 10, 10, 3) == 10 + 90 + 720
    assert count_orders([1] * 10, 10, 3, ordered=False) == 10 + 45 + 120
    assert count_orders([1] * 10, 2, 3) == 10 + 90


def test_count_of_a_huge_problem_stops_early():
    assert count_orders([1] * 1000, 10**6, 1000, limit=200_000) == 200_001
    assert count_orders(range(1000), 10**9, 1000, ordered=False, limit=10**6) == 10**6 + 1


def test_refuses_too_many_orders_before_scoring():
    scorer = HashScorer(0)
    with pytest.raises(SearchError) as refused:
        exhaustive([1] * 50, scorer, 10)
    message = str(refused.value)
    assert "more than 200000 feasible orders of up to 5 of 50 candidates" in message
    for remedy in ("raise max_orders", "lower max_length", "fewer candidates", "smaller budget"):
        assert remedy in message
    assert scorer.calls == []
    assert exhaustive([1] * 3, scorer, 3, max_orders=15).num_scored == 15
    with pytest.raises(SearchError, match="more than 14"):
        exhaustive([1] * 3, scorer, 3, max_orders=14)


@pytest.mark.parametrize("argument", ["max_length", "max_orders", "batch_size"])
def test_bad_bounds(argument):
    with pytest.raises(SearchError, match=f"{argument} is 0; it must be an integer of at least 1"):
        exhaustive([1], HashScorer(0), 1, **{argument: 0})


def test_reports_what_is_done_of_all_there_is():
    reports = []
    exhaustive([1] * 4, HashScorer(0), 2, batch_size=6, report=lambda *counts: reports.append(counts))
    assert reports == [(0, 16), (6, 16), (12, 16), (16, 16)]


def test_no_batch_is_larger_than_asked_for():
    scorer = HashScorer(0)
    exhaustive([1] * 20, scorer, 3, 3, batch_size=100)
    assert len(scorer.asked) == 20 + 20 * 19 + 20 * 19 * 18
    assert max(map(len, scorer.calls)) == 100
