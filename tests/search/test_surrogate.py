"""A surrogate before the scorer: exact when off, cheap when it knows, harmless when it does not."""

from math import nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.bench.problems import problems as family
from search import Run, SearchConfig, SearchError, count_orders, exhaustive, search, search_many
from search.drivers import POLICIES
from search.surrogate import MIN_CHILDREN, Surrogate
from tests.search.worlds import HashScorer, large_problems, policy_configs, problems, scorers

EXPANDING = ["paper", "public-code", "best-first", "beam", "greedy"]
every_policy = pytest.mark.parametrize("policy", POLICIES)


def with_prefilter(config, prefilter):
    return SearchConfig(**{name: getattr(config, name) for name in config.__slots__} | {"prefilter": prefilter})


def never(orders):
    raise AssertionError("a surrogate that is off was asked")


@given(problems, policy_configs, scorers)
def test_exact_when_off(problem, config, scorer):
    costs, budget = problem
    plain = HashScorer(scorer.seed, scorer.levels)
    without = search(costs, plain, budget, config)
    assert search(costs, scorer, budget, with_prefilter(config, 1.0), never) == without
    assert scorer.calls == plain.calls
    assert without.num_ranked == 0


@pytest.mark.slow
@settings(max_examples=60)
@given(large_problems, st.sampled_from(list(POLICIES)), st.integers(0, 10**6))
def test_exact_when_off_on_larger_problems(problem, policy, seed):
    costs, budget = problem
    config = SearchConfig(policy=policy, iterations=4, max_scored=60)
    plain, scorer = HashScorer(seed), HashScorer(seed)
    assert search(costs, scorer, budget, config, never) == search(costs, plain, budget, config)
    assert scorer.calls == plain.calls


def check_contract(problem, config, scorer, surrogate):
    costs, budget = problem
    result = search(costs, scorer, budget, config, surrogate)
    for order in [*scorer.asked, *surrogate.asked]:
        assert sum(costs[chunk] for chunk in order) <= budget
        assert 0 < len(set(order)) == len(order) <= (config.max_length or len(costs))
    assert len(set(scorer.asked)) == len(scorer.asked) == result.num_scored <= (config.max_scored or result.num_scored)
    assert len(scorer.calls) == result.num_calls == len(result.incumbents) <= config.iterations
    assert result.num_ranked == len(surrogate.asked)
    num_orders = count_orders(costs, budget, config.max_length or max(1, len(costs)), limit=result.num_scored)
    assert not result.complete or result.num_scored == num_orders
    if result.order:
        assert result.value == scorer.value(result.order)
    again = search(costs, HashScorer(scorer.seed, scorer.levels), budget, config, HashScorer(surrogate.seed, 4))
    assert result == again


shares = st.sampled_from([0.01, 0.25, 0.5, 0.999])


@pytest.mark.slow
@given(problems, policy_configs, shares, scorers, st.integers(0, 10**6))
def test_contract(problem, config, share, scorer, seed):
    check_contract(problem, with_prefilter(config, share), scorer, HashScorer(seed, levels=4))


@pytest.mark.slow
@settings(max_examples=60)
@given(large_problems, policy_configs, shares, scorers, st.integers(0, 10**6))
def test_contract_on_larger_problems(problem, config, share, scorer, seed):
    check_contract(problem, with_prefilter(config, share), scorer, HashScorer(seed, levels=4))


@given(st.sampled_from(EXPANDING), shares, scorers, st.integers(0, 10**6))
def test_sends_the_best_share_of_the_first_children(policy, share, scorer, seed):
    costs, surrogate = [3, 1, 2, 2, 4, 1, 3], HashScorer(seed, levels=4)
    search(costs, scorer, 9, SearchConfig(policy=policy, prefilter=share, iterations=1), surrogate)
    kept = max(MIN_CHILDREN, int(np.ceil(share * 7)))
    # Of equals the cheaper, then the better-ranked.
    ranked = sorted(((chunk,) for chunk in range(7)), key=lambda o: (-surrogate.value(o), costs[o[0]], o))
    assert set(scorer.asked) == set(ranked[:kept])
    assert scorer.asked == sorted(ranked[:kept], key=lambda order: (costs[order[0]], order))


@pytest.mark.parametrize("policy", EXPANDING)
def test_what_is_held_back_is_left_out_for_good(policy):
    scorer, surrogate = HashScorer(1), HashScorer(2)
    config = SearchConfig(policy=policy, prefilter=0.5, iterations=10_000, beam_width=100)
    result = search([1] * 5, scorer, 5, config, surrogate)
    assert not result.complete
    assert len(scorer.asked) < 5 + 20 + 60 + 120 + 120
    if policy != "greedy":  # it follows one order only
        # Three of five, two of four, and of the last ones two at least.
        assert len(scorer.asked) == 3 + 3 * 2 + 6 * 2 + 12 * 2 + 24


def test_so_few_children_that_all_are_sent():
    scorer = HashScorer(1)
    result = search([1, 1], scorer, 2, SearchConfig(policy="paper", prefilter=0.01, iterations=99), never)
    assert result.complete and result.num_scored == 4


@pytest.mark.slow
def test_a_perfect_surrogate_finds_every_optimum_at_once():
    for problem in family(3000, per_size=3):
        best = exhaustive(problem.costs, problem, problem.budget, problem.max_length)
        config = SearchConfig(policy="bayesian", max_length=5, max_scored=4, prefilter=0.5)
        found = search(problem.costs, problem, problem.budget, config, lambda orders: 3 * problem(orders) - 8)  # noqa: B023
        assert (found.value, found.num_scored) == (pytest.approx(best.value, abs=1e-9), 4)


@pytest.mark.slow
def test_a_useless_surrogate_costs_the_model_little():
    num_found = 0
    for number, problem in enumerate(family(3000, per_size=4)):
        config = SearchConfig(policy="bayesian", iterations=100, max_scored=48, max_length=5, prefilter=0.5)
        found = search(problem.costs, problem, problem.budget, config, HashScorer(number))
        best = exhaustive(problem.costs, problem, problem.budget, problem.max_length)
        num_found += found.value == pytest.approx(best.value, abs=1e-9)
    assert num_found >= 16  # of 20


def test_a_surrogate_leads_the_model_through_a_large_problem():
    # The best twelve of fifty; the surrogate is wrong about each by a little.
    rng = np.random.default_rng(0)
    worth = rng.permutation(50) / 50
    guessed = worth + rng.normal(0, 0.1, 50)

    def additive(orders):
        return [worth[list(order)].sum() for order in orders]

    def nearly(orders):
        return [guessed[list(order)].sum() for order in orders]

    plain = search([1] * 50, additive, 12, SearchConfig(policy="bayesian", max_scored=16))
    led = search([1] * 50, additive, 12, SearchConfig(policy="bayesian", max_scored=16, prefilter=0.5), nearly)
    best = np.sort(worth)[-12:].sum()
    assert plain.value < 0.9 * best < 0.95 * best < led.value


@settings(max_examples=30)
@given(problems, st.integers(0, 10**6), st.sampled_from([(8, 3), (0.25, 0), (1e-7, 0), (3e5, -7e5)]))
def test_the_scale_of_the_surrogate_changes_nothing(problem, seed, line):
    costs, budget = problem
    factor, shift = line
    for policy in ("bayesian", "paper"):
        config = SearchConfig(policy=policy, iterations=3, prefilter=0.3)
        plain, scaled, surrogate = HashScorer(seed), HashScorer(seed), HashScorer(seed + 1, levels=16)
        search(costs, plain, budget, config, surrogate)
        search(costs, scaled, budget, config, lambda orders: [shift + factor * v for v in surrogate(orders)])  # noqa: B023
        assert scaled.calls == plain.calls


@pytest.mark.parametrize("value", [0.5, 1e300, -1e-310])
@every_policy
def test_a_surrogate_that_knows_no_difference(policy, value):
    config = SearchConfig(policy=policy, prefilter=0.5, max_scored=20)
    result = search([1, 2, 3, 4], HashScorer(1), 6, config, lambda orders: [value] * len(orders))
    assert 0 < result.num_scored <= 20


@pytest.mark.slow
@given(st.lists(st.tuples(problems, policy_configs, shares), max_size=4), st.integers(0, 10**6))
def test_many_equals_one_by_one(work, seed):
    def score_pairs(pairs):
        return [HashScorer(seed + index).value(order) for index, order in pairs]

    def rank_pairs(pairs):
        assert len({index for index, _ in pairs}) == 1
        return [HashScorer(-seed - index).value(order) for index, order in pairs]

    configs = [with_prefilter(config, share) for _, config, share in work]
    many = search_many([problem for problem, _, _ in work], score_pairs, configs, rank_pairs)
    assert many == [
        search(costs, HashScorer(seed + index), budget, config, HashScorer(-seed - index))
        for index, (((costs, budget), _, _), config) in enumerate(zip(work, configs, strict=True))
    ]


@every_policy
def test_nothing_to_choose_from(policy):
    for costs in ([], [5, 6]):
        result = search(costs, HashScorer(0), 4, SearchConfig(policy=policy, prefilter=0.5), never)
        assert (result.order, result.num_scored, result.num_ranked, result.complete) == ((), 0, 0, True)


@pytest.mark.parametrize("prefilter", [0, -0.1, 1.1, nan, True, "0.5", None])
def test_bad_share(prefilter):
    with pytest.raises(SearchError, match=rf"prefilter is {prefilter!r}; it must be a number above 0 and at most 1"):
        SearchConfig(prefilter=prefilter)


def test_a_share_without_a_surrogate():
    for run in (search, lambda costs, _, budget, config: Run(costs, budget, config)):
        with pytest.raises(SearchError, match=r"prefilter is 0.5, but there is no surrogate .* or set prefilter to 1"):
            run([1], HashScorer(0), 1, SearchConfig(prefilter=0.5))


ANSWERS = [
    ([0.5], r"surrogate returned values of shape \(1,\) for . orders; it must return one value per order"),
    (None, r"surrogate returned values of shape \(\)"),
    ("abc", "surrogate returned str, which is no array of numbers"),
    ([0.5, nan, 1.0], r"surrogate returned nan for \(1,\); values must be finite"),
]


@pytest.mark.parametrize(("answer", "message"), ANSWERS)
@pytest.mark.parametrize("policy", ["bayesian", *EXPANDING])
def test_bad_values(policy, answer, message):
    config = SearchConfig(policy=policy, prefilter=0.1)
    with pytest.raises(SearchError, match=message):
        search([1, 1, 1], HashScorer(0), 1, config, lambda orders: answer)
    kept = search([1, 1, 1], HashScorer(0), 1, with_prefilter_and_keep(config), lambda orders: answer)
    assert (kept.order, kept.num_scored) == ((), 0)
    assert isinstance(kept.error, SearchError)


def with_prefilter_and_keep(config):
    return SearchConfig(policy=config.policy, prefilter=config.prefilter, on_error="keep")


class BreaksDown(HashScorer):
    """Fails at its second call."""

    def __call__(self, orders):
        if self.calls:
            raise OSError("the surrogate is gone")
        return super().__call__(orders)


@pytest.mark.parametrize("policy", EXPANDING)
def test_a_surrogate_that_breaks_down_on_the_way(policy):
    config = SearchConfig(policy=policy, prefilter=0.5)
    with pytest.raises(OSError, match="the surrogate is gone"):
        search([1] * 6, HashScorer(0), 4, config, BreaksDown(3))
    scorer = HashScorer(0)
    result = search([1] * 6, scorer, 4, with_prefilter_and_keep(config), BreaksDown(3))
    assert str(result.error) == "the surrogate is gone"
    assert (result.num_scored, result.num_calls, result.num_ranked) == (3, 1, 6)
    assert result.value == max(scorer.table.values())


def test_a_surrogate_that_fails_one_problem_leaves_the_others():
    def rank_pairs(pairs):
        return [nan if index == 1 else 0.5 for index, _ in pairs]

    def score_pairs(pairs):
        return [HashScorer(7).value(order) for _, order in pairs]

    config = SearchConfig(policy="paper", prefilter=0.5, on_error="keep", iterations=3)
    fine, failed = search_many([([1] * 6, 3), ([1] * 6, 3)], score_pairs, config, rank_pairs)
    assert fine.error is None and fine.num_calls == 3
    assert isinstance(failed.error, SearchError) and failed.order == ()


def test_promising_by_hand():
    surrogate = Surrogate(
        lambda orders: [{0: 0.1, 1: 0.9, 2: 0.5, 3: 0.5}[o[0]] for o in orders], SearchConfig(prefilter=0.5)
    )
    orders = [(0,), (2,), (1,), (3,)]
    assert surrogate.promising(orders).tolist() == [1, 2]  # 0.5, first of two, and 0.9
    assert surrogate.num_ranked == 4
