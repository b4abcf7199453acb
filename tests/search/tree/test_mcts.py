from math import log, sqrt

import numpy as np
import pytest

from search import SearchError, SearchTree, StopSearch, search, search_coroutine
from tests.search.worlds import TableScorer, paper_config

# Three candidates of cost 1, budget 2: orders of one or two candidates.
PAIRS = {
    (0,): 0.5, (1,): 0.75, (2,): 0.25,
    (1, 0): 1.0, (1, 2): 0.125, (0, 1): 0.25, (0, 2): 0.375, (2, 0): 0.0, (2, 1): 0.0,
}  # fmt: skip
# The same candidates, budget 3.
TRIPLES = {
    (0,): 0.75, (1,): 0.5, (2,): 0.25, (0, 1): 0.75, (0, 2): 0.5, (1, 0): 0.25, (1, 2): 0.25, (0, 1, 2): 0.5,
}  # fmt: skip


def by_order(tree: SearchTree, column: str) -> dict:
    return {tree.order(node): getattr(tree, column)[node] for node in range(len(tree))}


def run(table, budget, **settings):
    scorer = TableScorer(table)
    return search([1, 1, 1], scorer, budget, paper_config(**settings)), scorer


def test_best_child_backup_by_hand():
    result, scorer = run(PAIRS, 2, iterations=3, exploration=0, cost_weight=0)
    # 1: root.       Best child 0.75:  root W=0.75 n=1.
    # 2: U = W/n, so (1,).  Best 1.0:  (1,) W=0.75+1=1.75 n=2, root W=1.75 n=2; full, so (1,) closes.
    # 3: (1,) is closed, so (0,).  Best 0.375:  (0,) W=0.875 n=2, root W=2.125 n=3.
    assert scorer.calls == [[(0,), (1,), (2,)], [(1, 0), (1, 2)], [(0, 1), (0, 2)]]
    visits, total, closed = (by_order(result.tree, column) for column in ("visits", "total", "closed"))
    assert {order: visits[order] for order in [(), (0,), (1,), (2,), (1, 0)]} == {
        (): 3, (0,): 2, (1,): 2, (2,): 1, (1, 0): 1,
    }  # fmt: skip
    assert {order: total[order] for order in [(), (0,), (1,), (2,), (1, 0)]} == {
        (): 2.125, (0,): 0.875, (1,): 1.75, (2,): 0.25, (1, 0): 1.0,
    }  # fmt: skip
    assert result.tree.num_visits == 3 + 2 + 2 + 1 + 4
    assert [order for order, shut in closed.items() if not shut] == [(), (2,)]
    assert result.incumbents == ((1,), (1, 0), (1, 0))
    assert (result.order, result.value, result.cost) == ((1, 0), 1.0, 2)
    assert (result.num_scored, result.num_calls, result.complete) == (7, 3, False)


def test_all_children_backup_by_hand():
    result, _ = run(PAIRS, 2, iterations=3, exploration=0, cost_weight=0, backup="all-children")
    # 1: root  W=0.5+0.75+0.25=1.5 n=3.
    # 2: (1,)  W=0.75+(1+0.125)=1.875 n=1+2=3;  root W=2.625 n=5.  (1,) closes.
    # 3: (0,)  W=0.5+(0.25+0.375)=1.125 n=3;    root W=3.25 n=7.
    visits, total = by_order(result.tree, "visits"), by_order(result.tree, "total")
    assert (visits[()], visits[(0,)], visits[(1,)], visits[(2,)]) == (7, 3, 3, 1)
    assert (total[()], total[(0,)], total[(1,)], total[(2,)]) == (3.25, 1.125, 1.875, 0.25)
    assert result.tree.num_visits == 7 + 3 + 3 + 1 + 4


@pytest.mark.parametrize(
    ("backup", "visits", "third"),
    [
        # After two iterations (0,) has W=0.75+0.75=1.5, n=2 and the root n=2, so N=2+2+1+1+1+1=8.
        # U(0)=0.75+sqrt(ln8/2)=1.770, U(1)=0.5+sqrt(ln8)=1.942, U(2)=0.25+sqrt(ln8)=1.692.
        ("best-child", "total", (1,)),
        # N=n(root)=2: U(0)=0.75+sqrt(ln2/2)=1.339, U(1)=0.5+sqrt(ln2)=1.333; below (0,) the better (0, 1).
        ("best-child", "parent", (0, 1)),
        # (0,) has W=0.75+1.25=2, n=3, the root n=5, N=5+3+1+1+2=12:
        # U(0)=0.667+sqrt(ln12/3)=1.577, U(1)=0.5+sqrt(ln12)=2.076.
        ("all-children", "total", (1,)),
        # N=5: U(0)=0.667+sqrt(ln5/3)=1.399, U(1)=0.5+sqrt(ln5)=1.769.
        ("all-children", "parent", (1,)),
    ],
)
def test_walk_by_hand(backup, visits, third):
    _, scorer = run(TRIPLES, 3, iterations=3, exploration=1, cost_weight=0, backup=backup, visits=visits)
    assert [call[0][:-1] for call in scorer.calls] == [(), (0,), third]


def test_cost_weight_turns_the_walk():
    table = {(0,): 0.5, (1,): 0.25, (0, 1): 1.0, (1, 0): 1.0}
    # Costs 4 and 1 of 8: U(0)=0.5-lambda/2, U(1)=0.25-lambda/8, equal at lambda=2/3.
    for cost_weight, second in ((0.6, (0, 1)), (0.7, (1, 0))):
        scorer = TableScorer(table)
        search([4, 1], scorer, 8, paper_config(iterations=2, exploration=0, cost_weight=cost_weight))
        assert scorer.calls[1] == [second]


def test_walk_ties_go_to_lower_cost_then_better_rank():
    scorer = TableScorer(dict.fromkeys([(0,), (1,), (2,), (1, 0), (1, 2)], 0.5))
    search([2, 1, 1], scorer, 3, paper_config(iterations=2, cost_weight=0))
    # (1,) and (2,) cost 1: rank decides.  Children come cheapest first.
    assert scorer.calls == [[(1,), (2,), (0,)], [(1, 2), (1, 0)]]


def test_utility_of_the_result_is_eq_5_at_the_end():
    result, _ = run(PAIRS, 2, iterations=2)
    # (1, 0): W=1, n=1, cost 2 of 2; N = 2+2+1+1+1+1 = 8.
    assert result.utility == pytest.approx(1 + 2.4 * sqrt(log(8)) - 0.1)
    result, _ = run(PAIRS, 2, iterations=2, visits="parent")
    assert result.utility == pytest.approx(1 + 2.4 * sqrt(log(2)) - 0.1)


def test_public_code_backs_up_all_children_whatever_else_is_said():
    preset, _ = run(
        TRIPLES | {(1, 0): 0.25}, 3, iterations=3, policy="public-code", backup="best-child", visits="total"
    )
    spelt, _ = run(TRIPLES, 3, iterations=3, backup="all-children", visits="parent")
    assert preset == spelt
    assert preset.tree.total.tolist() == spelt.tree.total.tolist()


def test_the_last_expansion_is_cut_to_the_cheapest_children():
    scorer = TableScorer(PAIRS)
    result = search([1, 1, 1], scorer, 2, paper_config(max_scored=4, exploration=0, cost_weight=0))
    # As by hand above, but of (1, 0) and (1, 2) only the first may be scored.
    assert scorer.calls == [[(0,), (1,), (2,)], [(1, 0)]]
    visits, total, closed = (by_order(result.tree, column) for column in ("visits", "total", "closed"))
    assert visits == {(): 2, (0,): 1, (1,): 2, (2,): 1, (1, 0): 1}
    assert total[(1,)] == total[()] == 1.75
    assert closed == {(): False, (0,): False, (1,): False, (2,): False, (1, 0): True}
    assert result.tree.cut and not result.complete
    assert (result.order, result.num_scored, result.num_calls) == ((1, 0), 4, 2)


def test_a_cap_that_cuts_nothing_leaves_the_tree_whole():
    result, scorer = run(PAIRS, 2, iterations=100, max_scored=len(PAIRS))
    assert result.complete and not result.tree.cut and len(scorer.asked) == len(PAIRS)
    result, scorer = run(PAIRS, 2, iterations=100, max_scored=3)
    assert not result.complete and not result.tree.cut and len(scorer.calls) == 1


@pytest.mark.parametrize("max_scored", [None, 4])
def test_a_stop_leaves_the_tree_as_it_was_before_the_round(max_scored):
    short, _ = run(PAIRS, 2, iterations=1)
    running = search_coroutine([1, 1, 1], 2, paper_config(max_scored=max_scored))
    running.send(None)
    running.send([PAIRS[(chunk,)] for chunk in range(3)])
    with pytest.raises(StopIteration) as stop:
        running.throw(StopSearch())
    result = stop.value.value
    assert result == short and result.error is None
    for column in ("parent", "chunk", "total", "visits", "closed", "first_child", "num_children"):
        assert getattr(result.tree, column).tolist() == getattr(short.tree, column).tolist()


def test_ends_early_when_every_order_was_scored():
    result, scorer = run(PAIRS, 2, iterations=100)
    assert result.complete
    assert result.num_calls == len(scorer.calls) == len(result.incumbents) == 4
    assert sorted(scorer.asked) == sorted(PAIRS)


def test_coroutine_is_driven_by_hand():
    running = search_coroutine([1, 2], 2, paper_config(cost_weight=0))
    assert next(running) == [(0,), (1,)]
    with pytest.raises(StopIteration) as stop:
        running.send(np.array([0.25, 0.5]))
    assert stop.value.value.order == (1,)
    assert stop.value.value.complete


def test_bad_problem_is_refused_at_the_call():
    with pytest.raises(SearchError, match="budget is 0"):
        search_coroutine([1], 0, paper_config())
    with pytest.raises(SearchError, match="config is a dict; it must be a SearchConfig"):
        search_coroutine([1], 1, {})
