"""What every policy keeps to."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search import SearchConfig, count_orders, exhaustive, search, search_many
from search.drivers import POLICIES
from tests.search.worlds import HashScorer, large_problems, policy_configs, problems, scorers

every_policy = pytest.mark.parametrize("policy", POLICIES)
WITHOUT_TREE = [name for name in POLICIES if name not in ("paper", "public-code")]


@pytest.mark.slow
@given(problems, policy_configs, scorers)
def test_contract(problem, config, scorer):
    check_contract(problem, config, scorer)


@pytest.mark.slow
@settings(max_examples=60)
@given(large_problems, policy_configs, scorers)
def test_contract_on_larger_problems(problem, config, scorer):
    check_contract(problem, config, scorer)


def check_contract(problem, config, scorer):
    costs, budget = problem
    result = search(costs, scorer, budget, config)
    for order in scorer.asked:
        assert sum(costs[chunk] for chunk in order) <= budget
        assert 0 < len(set(order)) == len(order) <= (config.max_length or len(costs))
    assert all(scorer.calls)
    assert len(set(scorer.asked)) == len(scorer.asked) == result.num_scored
    assert result.num_scored <= (config.max_scored or result.num_scored)
    assert len(scorer.calls) == result.num_calls == len(result.incumbents) <= config.iterations
    num_orders = count_orders(costs, budget, config.max_length or max(1, len(costs)), limit=result.num_scored)
    assert result.complete == (result.num_scored == num_orders)
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
    assert (result.tree is None) == (config.policy in WITHOUT_TREE)
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


@given(problems, scorers, st.sampled_from(["paper", "public-code", "best-first"]))
def test_exhausting_policies_find_the_optimum(problem, scorer, policy):
    costs, budget = problem
    found = search(costs, scorer, budget, SearchConfig(policy=policy, iterations=10_000))
    best = exhaustive(costs, scorer, budget)
    assert found.complete
    assert (found.order, found.value, found.num_scored) == (best.order, best.value, best.num_scored)


@given(problems, scorers)
def test_a_model_without_limit_to_its_patience_is_exact(problem, scorer):
    costs, budget = problem
    config = SearchConfig(policy="bayesian", iterations=10_000, patience=None)
    found, best = search(costs, scorer, budget, config), exhaustive(costs, scorer, budget)
    assert found.complete
    assert (found.order, found.value, found.num_scored) == (best.order, best.value, best.num_scored)


@every_policy
def test_nothing_to_choose_from(policy):
    for costs in ([], [5, 6]):
        result = search(costs, HashScorer(0), 4, SearchConfig(policy=policy))
        assert (result.order, result.value, result.utility, result.cost) == ((), 0.0, 0.0, 0)
        assert (result.num_scored, result.num_calls, result.incumbents, result.complete) == (0, 0, (), True)


@every_policy
def test_one_candidate(policy):
    result = search([9, 4], HashScorer(0), 4, SearchConfig(policy=policy))
    assert (result.order, result.cost, result.num_scored, result.complete) == ((1,), 4, 1, True)


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "random"])
def test_equal_values_and_zero_costs(policy):
    # Nothing costs anything, so the shortest order of the best-ranked candidate wins.
    result = search([0] * 6, lambda orders: [0.5] * len(orders), 1, SearchConfig(policy=policy, max_scored=50))
    assert (result.order, result.value, result.cost) == ((0,), 0.5, 0)
    assert result.num_scored <= 50


@every_policy
def test_thousand_candidates(policy):
    scorer = HashScorer(3)
    config = SearchConfig(policy=policy, iterations=4, max_scored=1500)
    result = search(np.arange(1000) % 7 * 50, scorer, 1024, config)
    assert 0 < result.num_scored <= 1500 and result.cost <= 1024
    assert result.value == max(scorer.table.values())


@every_policy
def test_costs_at_the_upper_bound_do_not_overflow(policy):
    # 1,500 of them add up to more than an int64 holds.
    result = search([2**53] * 1500, HashScorer(3), 2**53, SearchConfig(policy=policy, iterations=2))
    assert result.cost == 2**53 and len(result.order) == 1


@every_policy
def test_max_length(policy):
    scorer = HashScorer(1)
    search([1] * 30, scorer, 30, SearchConfig(policy=policy, iterations=5, max_length=2))
    assert max(map(len, scorer.asked)) <= 2


@every_policy
@pytest.mark.parametrize("values", [(-1e300, 1e300), (1e-310, 3e-310), (1e12, 1e12 + 0.001)])
def test_extreme_values(policy, values):
    def extreme(orders):
        return [values[HashScorer(1).value(order) < 0.5] for order in orders]

    result = search([1, 2, 3, 4], extreme, 6, SearchConfig(policy=policy, max_scored=20))
    assert result.value == values[1]


def test_random_draws_depend_on_the_seed_only():
    def asked(seed):
        scorer = HashScorer(0)
        search([1] * 9, scorer, 4, SearchConfig(policy="random", seed=seed, iterations=2))
        return scorer.asked

    assert asked(1) == asked(1) != asked(2)


def test_random_finds_every_order_of_a_small_problem():
    scorer = HashScorer(0)
    result = search([1, 1, 1], scorer, 3, SearchConfig(policy="random", iterations=50))
    everything = [p for size in (1, 2, 3) for c in combinations(range(3), size) for p in permutations(c)]
    assert sorted(scorer.asked) == sorted(everything)
    assert result.complete
