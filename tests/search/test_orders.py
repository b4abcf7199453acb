"""Feasible orders: listed, extended, and all of them scored."""

import tracemalloc
from itertools import count, islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InputError
from search import exhaustive
from search.orders import OrderSpace
from tests.search.worlds import HashScorer, feasible_orders, problems, scorers

lengths = st.none() | st.integers(1, 4)


@given(problems, lengths, st.booleans(), st.integers(1, 7))
def test_orders_are_listed_in_blocks_and_cheapest_first(problem, max_length, ordered, size):
    costs, budget = problem
    space = OrderSpace(np.array(costs, dtype=np.int64), budget, max_length)
    every = feasible_orders(costs, budget, max_length)
    blocks = [rows.tolist() for rows in space.blocks(size, ordered=ordered)]
    expected = sorted(order for order in every if ordered or order == tuple(sorted(order)))
    assert sorted(space.order(np.array(row)) for rows in blocks for row in rows) == expected
    assert space.count(10**9, ordered=ordered) == len(expected)
    assert all(len(rows) == size for rows in blocks[:-1])
    cheapest_first = sorted(every, key=lambda order: (sum(costs[c] for c in order), len(order), order))
    assert [space.order(row) for row in space.enumerate(len(every))] == cheapest_first
    if every:
        assert space.max_length == max(map(len, every))
        assert space.enumerate(len(every) - 1) is None and space.count(len(every)) == len(every)


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


# Of 3,000 candidates ten orders are continued at a time, so all lengths are in memory within a block.
@pytest.mark.parametrize(("costs", "num_blocks"), [([1] * 40, 300), ([1] * 3000, 12)])
def test_counting_and_scoring_orders_without_end_stops_in_little_memory(costs, num_blocks):
    calls = count()

    def check():
        if next(calls) == 300:
            raise TimeoutError

    tracemalloc.start()
    try:
        with pytest.raises(TimeoutError):
            exhaustive(costs, HashScorer(0), 20, 20, max_orders=10**18, check=check)
        assert sum(map(len, islice(OrderSpace(np.array(costs), 20).blocks(4096), num_blocks))) == num_blocks * 4096
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


def test_refuses_too_many_orders_before_scoring():
    scorer = HashScorer(0)
    with pytest.raises(InputError, match="max_orders"):
        exhaustive([1] * 1000, scorer, 10)
    assert scorer.calls == []
    assert exhaustive([1] * 3, scorer, 3, max_orders=15).num_scored == 15
