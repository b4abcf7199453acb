"""Every policy: what it keeps to, what it answers, and what it refuses."""

from dataclasses import replace
from math import nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import InputError
from search import POLICIES, SearchConfig, exhaustive, search, search_many
from tests.search.worlds import HashScorer, drawn, feasible_orders, policy_configs, problems, scorers

every_policy = pytest.mark.parametrize("policy", POLICIES)


def searched(problem, config, scorer):
    """Search, and check that what is asked for keeps to the rules."""
    costs, budget = problem
    result = search(costs, scorer, budget, config)
    for order in scorer.asked:
        assert sum(costs[chunk] for chunk in order) <= budget
        assert 0 < len(set(order)) == len(order) <= (config.max_length or len(costs))
    assert all(scorer.calls)
    assert len(set(scorer.asked)) == len(scorer.asked) == result.num_scored
    assert result.num_scored <= (config.max_scored or result.num_scored)
    assert len(scorer.calls) == result.num_calls == len(result.incumbents) <= config.iterations
    return result


many = drawn(lambda rng: ([rng.randint(1, 6) for _ in range(rng.randint(20, 60))], rng.randint(3, 20)))


@settings(max_examples=25)
@given(many, policy_configs, scorers)
def test_orders_of_many_candidates_keep_to_the_rules(problem, config, scorer):
    searched(problem, replace(config, iterations=3), scorer)


@pytest.mark.slow
@settings(max_examples=200)
@given(problems, policy_configs, scorers)
def test_contract(problem, config, scorer):
    costs, budget = problem
    result = searched(problem, config, scorer)
    assert result.complete == (result.num_scored == len(feasible_orders(costs, budget, config.max_length)))
    assert result == search(costs, HashScorer(scorer.seed, scorer.levels), budget, config)

    def rank(order):
        cost = sum(costs[chunk] for chunk in order)
        weight = config.cost_weight if config.choice == "value-minus-cost" else 0.0
        return weight * (cost / budget) - scorer.value(order), cost, len(order), order

    asked = []
    for orders, incumbent in zip(scorer.calls, result.incumbents, strict=True):
        asked += orders
        assert incumbent == min(asked, key=rank)
    best = min(asked, key=rank, default=())
    value = scorer.value(best) if best else 0.0
    assert (result.order, result.value) == (best, value)
    assert result.cost == sum(costs[chunk] for chunk in best)
    assert (result.tree is None) == (config.policy != "paper")
    if result.tree is None:
        assert result.utility == pytest.approx(value - config.cost_weight * result.cost / budget)


@given(problems, policy_configs, scorers, st.integers(1, 60))
def test_a_cap_cuts_the_same_search_short(problem, config, scorer, max_scored):
    costs, budget = problem
    same = {"policy": config.policy, "iterations": config.iterations, "max_length": config.max_length}
    full, capped = HashScorer(scorer.seed), HashScorer(scorer.seed)
    search(costs, full, budget, SearchConfig(**same))
    search(costs, capped, budget, SearchConfig(**same, max_scored=max_scored))
    assert capped.asked == full.asked[:max_scored]


@pytest.mark.slow
@given(st.lists(st.tuples(problems, policy_configs), max_size=5), st.integers(0, 10**6))
def test_many_equals_one_by_one(work, seed):
    def score_pairs(pairs):
        return [HashScorer(seed + index).value(order) for index, order in pairs]

    many = search_many([problem for problem, _ in work], score_pairs, [config for _, config in work])
    assert many == [
        search(costs, HashScorer(seed + index), budget, config) for index, ((costs, budget), config) in enumerate(work)
    ]


@every_policy
def test_costs_at_the_upper_bound_do_not_overflow(policy):
    # 1,500 of them add up to more than an int64 holds.
    result = search([2**53] * 1500, HashScorer(3), 2**53, SearchConfig(policy=policy, iterations=2))
    assert result.cost == 2**53 and len(result.order) == 1


@every_policy
@pytest.mark.parametrize("values", [(-1e300, 1e300), (1e-310, 3e-310), (1e12, 1e12 + 0.001)])
def test_extreme_values(policy, values):
    def extreme(orders):
        return [values[HashScorer(1).value(order) < 0.5] for order in orders]

    result = search([1, 2, 3, 4], extreme, 6, SearchConfig(policy=policy, max_scored=20))
    assert result.value == values[1]


def zeros(orders):
    return np.zeros(len(orders))


def test_nothing_to_choose_from():
    for costs in ([], [5, 6], np.array([], dtype=np.int64)):
        for result in (search(costs, zeros, 4), exhaustive(costs, zeros, 4)):
            assert (result.order, result.value, result.utility, result.cost) == ((), 0.0, 0.0, 0)
            assert (result.num_scored, result.num_calls, result.incumbents) == (0, 0, ())
            assert result.complete


@pytest.mark.parametrize(
    ("costs", "budget"),
    [([[1], [1, 2]], 4), (["1"], 4), ([1, -2], 4), ([1.5], 4), ([1.0, nan], 4), ([1], 0), ([1], 2.5), ([1], "8")],
)
def test_problems_that_are_refused(costs, budget):
    for run in (search, exhaustive):
        with pytest.raises(InputError):
            run(costs, zeros, budget)


@pytest.mark.parametrize("answer", [[0.5], [[0.5], [0.5]], None, ["a", "b"], [0.5, nan]])
def test_bad_values(answer):
    for run in (search, exhaustive):
        with pytest.raises(InputError):
            run([1, 1], lambda orders: answer, 1)
    with pytest.raises(InputError):
        search_many([([1], 1), ([1], 1)], lambda pairs: answer)


def test_one_config_for_each_problem():
    with pytest.raises(InputError):
        search_many([([1], 1), ([1], 1)], zeros, [SearchConfig()])
