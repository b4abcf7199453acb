"""Several nodes a round."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search import SearchConfig, SearchError, count_orders, exhaustive, search
from tests.search.worlds import HashScorer, configs, paper_config, problems, scorers

many = st.integers(2, 6)


@given(problems, configs, scorers, many, st.none() | st.integers(1, 40))
def test_a_round_keeps_to_the_rules(problem, config, scorer, parallel, max_scored):
    costs, budget = problem
    config = replace(config, parallel=parallel, max_scored=max_scored)
    result = search(costs, scorer, budget, config)
    assert len(set(scorer.asked)) == len(scorer.asked) == result.num_scored <= (max_scored or result.num_scored)
    assert all(sum(costs[chunk] for chunk in order) <= budget for order in scorer.asked)
    assert len(scorer.calls) == result.num_calls <= config.iterations
    assert all(len({order[:-1] for order in call}) <= parallel for call in scorer.calls)
    tree = result.tree
    assert tree.num_visits == tree.visits.sum()
    num_orders = count_orders(costs, budget, config.max_length or max(1, len(costs)), limit=result.num_scored)
    assert result.complete == (result.num_scored == num_orders)
    for node in range(len(tree)):
        children = tree.children(node)
        if tree.num_children[node] and tree.closed[children].all():
            # All but a node whose own children were cut.
            assert tree.closed[node] or (max_scored is not None and children.stop == len(tree))


@given(problems, scorers, many, st.sampled_from(["best-child", "all-children", "utility"]))
def test_run_to_the_end_it_finds_the_optimum_in_no_more_rounds(problem, scorer, parallel, backup):
    costs, budget = problem
    config = paper_config(iterations=10_000, backup=backup)
    one, several = (search(costs, scorer, budget, replace(config, parallel=k)) for k in (1, parallel))
    best = exhaustive(costs, scorer, budget)
    assert several.complete
    assert (several.order, several.value, several.num_scored) == (best.order, best.value, best.num_scored)
    assert several.num_calls <= one.num_calls


@given(problems, scorers)
def test_the_first_node_of_a_round_is_the_one_of_a_search_by_one(problem, scorer):
    costs, budget = problem
    for parallel in (1, 3):
        scorer.calls.clear()
        search(costs, scorer, budget, paper_config(iterations=2, parallel=parallel))
        calls = list(scorer.calls)
        if parallel == 1:
            single = calls
        elif len(calls) == 2:
            assert calls[0] == single[0]
            assert calls[1][: len(single[1])] == single[1]


def test_the_best_open_nodes_by_the_walk():
    # (1,) is worth most, then (2,); their children are worth little, so each walk stays in the first layer.
    values = {(0,): 0.1, (1,): 0.9, (2,): 0.5, (3,): 0.3}
    calls = []

    def score(orders):
        calls.append({order[:-1] for order in orders})
        return [values.get(order, 0.0) for order in orders]

    search([1] * 4, score, 4, paper_config(iterations=2, exploration=0, parallel=2))
    assert calls == [{()}, {(1,), (2,)}]


def test_a_cap_falls_on_the_last_nodes_of_a_round():
    scorer = HashScorer(1)
    full = HashScorer(1)
    config = paper_config(iterations=2, parallel=3)
    search([1] * 4, full, 4, config)
    for max_scored in range(1, len(full.asked) + 1):
        scorer.calls.clear()
        result = search([1] * 4, scorer, 4, replace(config, max_scored=max_scored))
        assert scorer.asked == full.asked[:max_scored]
        assert result.num_scored == max_scored == len(result.tree) - 1


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_failed_round_is_taken_back_whole(fails_at):
    def failing(orders):
        failing.calls += 1
        if failing.calls == fails_at:
            raise TimeoutError("no answer")
        return HashScorer(2)(orders)

    failing.calls = 0
    config = paper_config(iterations=5, parallel=3, on_error="keep")
    result = search([1] * 5, failing, 5, config)
    assert isinstance(result.error, TimeoutError) and not result.complete
    assert len(result.tree) == result.num_scored + 1
    if fails_at > 1:
        before = search([1] * 5, HashScorer(2), 5, replace(config, iterations=fails_at - 1))
        assert (result.order, result.incumbents) == (before.order, before.incumbents)
        assert (result.tree.visits == before.tree.visits).all()
        assert (result.tree.num_children == before.tree.num_children).all()


def test_at_the_deadline_a_round_is_taken_back_whole():
    result = search([1] * 5, HashScorer(2), 5, paper_config(parallel=3, deadline_ms=0))
    assert (result.num_calls, result.num_scored, len(result.tree)) == (1, 5, 6)


def test_a_surrogate_prunes_every_node_of_a_round():
    scorer = HashScorer(2)
    config = paper_config(iterations=2, parallel=3, prefilter=0.5)
    result = search([1] * 6, scorer, 6, config, surrogate=HashScorer(3))
    assert [len(call) for call in scorer.calls] == [3, 9]
    assert not result.complete


@pytest.mark.parametrize("policy", ["bayesian", "best-first", "beam", "greedy", "random"])
def test_policies_without_a_tree_refuse_it(policy):
    with pytest.raises(SearchError, match=f"parallel is 2, but policy '{policy}' expands no nodes; leave it out, or"):
        SearchConfig(policy=policy, parallel=2)
    assert SearchConfig(policy=policy, parallel=1).parallel == 1
