"""The policy tree by hand and against a plain one, written as in a textbook; and several nodes a round."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search import exhaustive, search
from tests.search.reference import eq_5, search_by_objects
from tests.search.worlds import HashScorer, TableScorer, configs, paper_config, problems, scorers

# Three candidates of cost 1, budget 2: orders of one or two candidates.
PAIRS = {
    (0,): 0.5, (1,): 0.75, (2,): 0.25,
    (1, 0): 1.0, (1, 2): 0.125, (0, 1): 0.25, (0, 2): 0.375, (2, 0): 0.0, (2, 1): 0.0,
}  # fmt: skip


def by_order(tree, column):
    return {tree.order(node): getattr(tree, column)[node] for node in range(len(tree))}


def run(table, budget, **settings):
    scorer = TableScorer(table)
    return search([1, 1, 1], scorer, budget, paper_config(**settings)), scorer


def test_utility_of_the_result_is_eq_5_at_the_end():
    result, _ = run(PAIRS, 2, iterations=2)
    # (1, 0): W=1, n=1, cost 2 of 2; N = 2+2+1+1+1+1 = 8.
    assert result.utility == pytest.approx(eq_5(1, 1, 8, 1, 2.4, 0.1))
    result, _ = run(PAIRS, 2, iterations=2, visits="parent")
    assert result.utility == pytest.approx(eq_5(1, 1, 2, 1, 2.4, 0.1))


def test_the_last_expansion_is_cut_to_the_cheapest_children():
    scorer = TableScorer(PAIRS)
    result = search([1, 1, 1], scorer, 2, paper_config(max_scored=4, exploration=0, cost_weight=0))
    # 1: root.       Best child 0.75:  root W=0.75 n=1.
    # 2: U = W/n, so (1,).  Of (1, 0) and (1, 2) only the first may be scored.  Best 1.0:  (1,) W=0.75+1=1.75 n=2, root
    # W=1.75 n=2.
    assert scorer.calls == [[(0,), (1,), (2,)], [(1, 0)]]
    visits, total, closed = (by_order(result.tree, column) for column in ("visits", "total", "closed"))
    assert visits == {(): 2, (0,): 1, (1,): 2, (2,): 1, (1, 0): 1}
    assert total[(1,)] == total[()] == 1.75
    assert closed == {(): False, (0,): False, (1,): False, (2,): False, (1, 0): True}
    assert result.tree.cut and not result.complete
    assert (result.order, result.num_scored, result.num_calls) == ((1, 0), 4, 2)


@given(problems, scorers, st.integers(2, 6), st.sampled_from(["best-child", "all-children", "utility"]))
def test_run_to_the_end_it_finds_the_optimum_in_no_more_rounds(problem, scorer, parallel, backup):
    costs, budget = problem
    config = paper_config(iterations=10_000, backup=backup)
    one, several = (search(costs, scorer, budget, replace(config, parallel=k)) for k in (1, parallel))
    best = exhaustive(costs, scorer, budget)
    assert several.complete
    assert (several.order, several.value, several.num_scored) == (best.order, best.value, best.num_scored)
    assert several.num_calls <= one.num_calls


@settings(max_examples=400)
@given(problems, configs, scorers)
def test_equals_the_textbook(problem, config, scorer):
    costs, budget = problem
    if config.backup == "utility":  # sums of logarithms round differently, so no two nodes may be equally good
        scorer = HashScorer(scorer.seed)
    result = search(costs, scorer, budget, config)
    order, incumbents, nodes = search_by_objects(costs, HashScorer(scorer.seed, scorer.levels), budget, config)
    assert (result.order, result.incumbents) == (order, incumbents)
    tree = result.tree
    found = {tree.order(n): (tree.visits[n], tree.total[n]) for n in range(len(tree))}
    exact = config.backup != "utility"
    assert found == (nodes if exact else {key: pytest.approx(node, rel=1e-9) for key, node in nodes.items()})
