from math import inf, nan

import numpy as np
import pytest

from search import Problem, Run, SearchConfig, SearchError, exhaustive, search, search_many
from search.drivers import POLICIES
from tests.search.worlds import HashScorer

every_policy = pytest.mark.parametrize("policy", POLICIES)


def zeros(orders):
    return np.zeros(len(orders))


def test_nothing_to_choose_from():
    for costs in ([], [5, 6], np.array([], dtype=np.int64)):
        for result in (search(costs, zeros, 4), exhaustive(costs, zeros, 4)):
            assert (result.order, result.value, result.utility, result.cost) == ((), 0.0, 0.0, 0)
            assert (result.num_scored, result.num_calls, result.incumbents) == (0, 0, ())
            assert result.complete


def test_one_candidate():
    result = search([4], HashScorer(0), 4)
    assert (result.order, result.cost, result.num_scored, result.complete) == ((0,), 4, 1, True)


def test_whole_floats_are_costs():
    result = search(np.array([2.0, 3.0]), zeros, 5.0)
    assert (result.order, result.cost) == ((0,), 2)
    assert isinstance(result.cost, int)


def test_zero_costs_and_equal_values():
    result = search([0, 0, 0], zeros, 1, SearchConfig(policy="paper", iterations=100))
    assert (result.order, result.num_scored, result.complete) == ((0,), 3 + 6 + 6, True)


def test_duplicated_costs_are_different_candidates():
    result = search([2, 2], lambda orders: [float(order[0]) for order in orders], 3)
    assert result.order == (1,)


def test_thousand_candidates():
    result = search(np.full(1000, 100), HashScorer(3), 1024, SearchConfig(policy="paper"))
    assert result.num_calls == 10
    assert result.num_scored >= 1000 + 9 * 991
    assert result.cost <= 1024


def test_costs_at_the_upper_bound_do_not_overflow():
    result = search([2**53, 2**53], zeros, 2**53)
    assert (result.num_scored, result.cost) == (2, 2**53)


def test_result_compares_without_its_tree_and_prints_short():
    first, second = (search([1, 2], HashScorer(0), 3, SearchConfig(policy="paper")) for _ in range(2))
    assert first == second
    assert first.tree is not second.tree
    assert "tree" not in repr(first)


def test_many_takes_tuples_and_one_config():
    def score_pairs(pairs):
        return [index + order[0] / 10 for index, order in pairs]

    results = search_many([Problem([1, 1], 1), ([], 3), ([1, 9], 2)], score_pairs)
    assert [result.order for result in results] == [(1,), (), (0,)]
    assert [result.value for result in results] == pytest.approx([0.1, 0.0, 2.0])
    assert search_many([], score_pairs) == []


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ([[1, 2]], r"costs have shape \(1, 2\); give one number per candidate"),
        (3, r"costs have shape \(\)"),
        ([[1], [1, 2]], "costs are ragged"),
        (["1"], "costs have dtype <U1; they must be whole numbers"),
        ([True], "costs have dtype bool"),
        ([10**30], "costs have dtype object"),
        ([1, -2], r"costs\[1\] is -2; every cost must be a whole number from 0 to 2\*\*53"),
        ([1.5], r"costs\[0\] is 1.5; .* round estimated costs up"),
        ([1.0, nan], r"costs\[1\] is nan"),
        ([inf], r"costs\[0\] is inf"),
        ([2**53 + 1], r"costs\[0\] is 9007199254740993"),
    ],
)
def test_bad_costs(costs, message):
    for run in (search, exhaustive):
        with pytest.raises(SearchError, match=message):
            run(costs, zeros, 4)


@pytest.mark.parametrize("budget", [0, -3, 2.5, nan, inf, True, "8", None, 2**60])
def test_bad_budget(budget):
    for run in (search, exhaustive):
        with pytest.raises(SearchError, match=rf"budget is {budget!r}; it must be a whole number from 1"):
            run([1], zeros, budget)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([0.5], r"values of shape \(1,\) for 2 orders; it must return one value per order"),
        ([[0.5], [0.5]], r"values of shape \(2, 1\) for 2 orders"),
        (None, r"values of shape \(\) for 2 orders"),
        (["a", "b"], "score_orders returned list, which is no array of numbers"),
        ([0.5, nan], r"score_orders returned nan for \(1,\); values must be finite"),
        ([inf, 0.5], r"score_orders returned inf for \(0,\)"),
    ],
)
def test_bad_values(answer, message):
    for run in (search, exhaustive):
        with pytest.raises(SearchError, match=message):
            run([1, 1], lambda orders: answer, 1)


def test_bad_values_of_many_name_the_problem():
    with pytest.raises(SearchError, match=r"returned nan for \(1, \(0,\)\)"):
        search_many([([1], 1), ([1], 1)], lambda pairs: [0.5, nan])
    with pytest.raises(SearchError, match=r"shape \(1,\) for 2 orders"):
        search_many([([1], 1), ([1], 1)], lambda pairs: [0.5])


def test_bad_many():
    with pytest.raises(SearchError, match=r"problems\[1\]: budget is 0"):
        search_many([([1], 1), ([1], 0)], zeros)
    with pytest.raises(SearchError, match=r"problems\[0\] is 7; it must be Problem\(costs, budget\)"):
        search_many([7], zeros)
    with pytest.raises(SearchError, match="1 configs for 2 problems"):
        search_many([([1], 1), ([1], 1)], zeros, [SearchConfig()])
    with pytest.raises(SearchError, match="config is a NoneType"):
        search_many([([1], 1)], zeros, None)


def test_errors_of_the_scorer_pass_through():
    def stops(orders):
        raise StopIteration("from the scorer")

    with pytest.raises(StopIteration, match="from the scorer"):
        search([1], stops, 1)


class Failing(HashScorer):
    """Breaks down at its second call."""

    def __init__(self, fault):
        super().__init__(seed=5)
        self.fault = fault

    def __call__(self, orders):
        values = super().__call__(orders)
        if len(self.calls) < 2:
            return values
        if isinstance(self.fault, Exception):
            raise self.fault
        return [self.fault] * len(orders)


def first_round(policy, **settings):
    return search([1, 1, 1], HashScorer(5), 3, SearchConfig(policy=policy, iterations=1, batch_size=4, **settings))


def kept(result):
    return (result.order, result.value, result.utility, result.num_scored, result.num_calls, result.incumbents)


@every_policy
@pytest.mark.parametrize("fault", [ZeroDivisionError("overheated"), nan])
def test_a_failing_scorer_raises_or_keeps(policy, fault):
    config = SearchConfig(policy=policy, batch_size=4)
    expected = ZeroDivisionError if isinstance(fault, Exception) else SearchError
    with pytest.raises(expected):
        search([1, 1, 1], Failing(fault), 3, config)
    result = search([1, 1, 1], Failing(fault), 3, SearchConfig(policy=policy, batch_size=4, on_error="keep"))
    assert isinstance(result.error, expected)
    assert kept(result) == kept(first_round(policy))
    assert not result.complete


@every_policy
def test_a_scorer_that_fails_at_once_leaves_an_empty_result(policy):
    result = search([1], lambda orders: 1 / 0, 1, SearchConfig(policy=policy, on_error="keep"))
    assert kept(result) == ((), 0.0, 0.0, 0, 0, ())
    assert isinstance(result.error, ZeroDivisionError) and not result.complete


@every_policy
def test_a_failing_call_ends_the_searches_that_waited_for_it(policy):
    # The first problem is over after one round, so the second call carries the others only.
    problems = [([1], 1), ([1, 1, 1], 3), ([1, 1, 1], 3)]
    config = SearchConfig(policy=policy, batch_size=4, on_error="keep")

    def failing(pairs):
        if (1, (0,)) in pairs or (1, (1,)) in pairs or (0, (0,)) in pairs:
            return [HashScorer(5).value(order) for _, order in pairs]
        raise TimeoutError("no answer")

    alone, *others = search_many(problems, failing, config)
    assert alone.complete and alone.error is None
    for result in others:
        assert isinstance(result.error, TimeoutError)
        assert result.num_calls >= 1
    assert kept(others[0]) == kept(others[1])
    with pytest.raises(TimeoutError, match="no answer"):
        search_many(problems, failing, SearchConfig(policy=policy, batch_size=4))


def test_one_impatient_search_is_enough_to_raise():
    def failing(pairs):
        raise TimeoutError("no answer")

    problems = [([1], 1), ([1], 1)]
    with pytest.raises(TimeoutError, match="no answer"):
        search_many(problems, failing, [SearchConfig(on_error="keep"), SearchConfig()])


def test_an_interrupt_is_no_failure_of_the_scorer():
    def interrupted(orders):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search([1], interrupted, 1, SearchConfig(on_error="keep"))


@every_policy
def test_at_the_deadline_the_first_round_has_run(policy):
    at_once = search([1, 1, 1], HashScorer(5), 3, SearchConfig(policy=policy, batch_size=4, deadline_ms=0))
    assert kept(at_once) == kept(first_round(policy))
    assert at_once.error is None
    unhurried = search([1, 1, 1], HashScorer(5), 3, SearchConfig(policy=policy, deadline_ms=1e9))
    assert unhurried == search([1, 1, 1], HashScorer(5), 3, SearchConfig(policy=policy))


@every_policy
def test_a_run_is_driven_by_hand(policy):
    config = SearchConfig(policy=policy)
    scorer, run = HashScorer(3), Run([2, 1, 2], 4, config)
    while run.result is None:
        assert run.asked
        run.send(np.asarray(scorer(run.asked)))
    assert run.asked == []
    assert run.result == search([2, 1, 2], HashScorer(3), 4, config)


def test_a_run_is_stopped_by_hand():
    run = Run([1, 1], 2, SearchConfig(policy="paper"))
    run.send(np.array([0.5, 0.25]))
    run.stop()
    assert run.result.order == (0,) and run.asked == []
