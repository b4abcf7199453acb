"""Feasible orders: listed, extended, and all of them scored."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search import SearchError, exhaustive
from search.orders import OrderSpace
from tests.search.worlds import HashScorer, feasible_orders, problems, scorers

lengths = st.none() | st.integers(1, 4)


def make(problem, max_length=None):
    costs, budget = problem
    return OrderSpace(np.array(costs, dtype=np.int64), budget, max_length)


@given(problems, lengths)
def test_enumerated_orders_are_the_feasible_ones_cheapest_first(problem, max_length):
    space, (costs, _) = make(problem, max_length), problem
    expected = feasible_orders(*problem, max_length)
    rows = space.enumerate(len(expected)).tolist()
    orders = [tuple(chunk for chunk in row if chunk < len(costs)) for row in rows]
    assert orders == sorted(expected, key=lambda order: (sum(costs[c] for c in order), len(order), order))
    assert not expected or space.max_length == max(map(len, expected))
    if expected:
        assert space.enumerate(len(expected) - 1) is None


@given(problems, scorers, st.integers(1, 6), st.booleans())
def test_exhaustive_equals_brute_force(problem, scorer, max_length, ordered):
    costs, budget = problem
    result = exhaustive(costs, scorer, budget, max_length, ordered=ordered)
    expected = [
        order for order in feasible_orders(costs, budget, max_length) if ordered or order == tuple(sorted(order))
    ]
    assert sorted(scorer.asked) == sorted(expected)
    assert result.num_scored == len(expected)
    assert (result.tree, result.complete) == (None, True)

    def rank(order):
        return -scorer.value(order), sum(costs[chunk] for chunk in order), len(order), order

    best = min(expected, key=rank, default=())
    assert result.order == best
    assert result.value == result.utility == (scorer.value(best) if best else 0.0)
    assert result.cost == sum(costs[chunk] for chunk in best)


def test_refuses_too_many_orders_before_scoring():
    scorer = HashScorer(0)
    with pytest.raises(SearchError, match="max_orders"):
        exhaustive([1] * 1000, scorer, 10)
    assert scorer.calls == []
    assert exhaustive([1] * 3, scorer, 3, max_orders=15).num_scored == 15
