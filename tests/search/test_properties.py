import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search import exhaustive, search, search_many
from tests.search.reference import search_by_objects
from tests.search.worlds import HashScorer, configs, paper_config, problems, scorers


@given(problems, configs, scorers)
def test_asks_only_for_new_feasible_orders(problem, config, scorer):
    costs, budget = problem
    result = search(costs, scorer, budget, config)
    for order in scorer.asked:
        assert sum(costs[chunk] for chunk in order) <= budget
        assert len(set(order)) == len(order) <= (config.max_length or len(costs))
    assert len(set(scorer.asked)) == len(scorer.asked) == result.num_scored
    assert len(scorer.calls) == result.num_calls == len(result.incumbents) <= config.iterations
    assert all(scorer.calls)
    assert result.order == (result.incumbents[-1] if result.incumbents else ())
    assert result.cost == sum(costs[chunk] for chunk in result.order)
    assert result.value == (scorer.value(result.order) if result.order else 0.0)


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


@given(problems, configs, scorers)
def test_tree_invariants(problem, config, scorer):
    costs, budget = problem
    result = search(costs, scorer, budget, config)
    tree = result.tree
    assert tree.num_visits == tree.visits.sum()
    assert len(tree.parent) == len(tree) == result.num_scored + 1
    assert result.complete == tree.closed[tree.ROOT]
    for node in range(len(tree)):
        children = tree.children(node)
        own = 0 if node == tree.ROOT else 1
        if tree.num_children[node]:
            assert (tree.parent[children] == node).all()
            assert (tree.cost[children] >= tree.cost[node]).all()
            assert tree.closed[node] == tree.closed[children].all()
            if config.backup != "all-children":  # a visit for each expansion at or under the node
                assert tree.visits[node] == own + 1 + (tree.visits[children] - 1).sum()
            else:  # a visit for each node under it
                assert tree.visits[node] == own + tree.visits[children].sum()
                assert tree.total[node] == tree.value[node] + tree.total[children].sum()
        else:
            assert children.start == tree.NO_CHILD
            assert tree.visits[node] == own
            assert tree.total[node] == tree.value[node]


@given(problems, st.sampled_from(["best-child", "all-children", "utility"]), scorers)
def test_with_ample_iterations_equals_exhaustive(problem, backup, scorer):
    costs, budget = problem
    found = search(costs, scorer, budget, paper_config(iterations=10_000, backup=backup))
    best = exhaustive(costs, scorer, budget)
    assert found.complete
    assert found.num_scored == best.num_scored
    assert (found.order, found.value, found.cost) == (best.order, best.value, best.cost)


@pytest.mark.slow
@given(problems, configs, st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_renaming_candidates_renames_the_answer(problem, config, seed, random):
    costs, budget = problem
    name = list(range(len(costs)))  # name[i]: what candidate i is called in the other problem
    random.shuffle(name)
    renamed_costs = [0] * len(costs)
    for chunk, cost in enumerate(costs):
        renamed_costs[name[chunk]] = cost
    scorer = HashScorer(seed)

    def score_renamed(orders):
        return [scorer.value(tuple(name.index(chunk) for chunk in order)) for order in orders]

    plain = search(costs, scorer, budget, config)
    renamed = search(renamed_costs, score_renamed, budget, config)
    assert renamed.order == tuple(name[chunk] for chunk in plain.order)
    assert renamed.num_scored == plain.num_scored


@pytest.mark.slow
@given(st.lists(st.tuples(problems, configs), max_size=5), st.integers(0, 10**6))
def test_many_equals_one_by_one(work, seed):
    calls = []

    def score_pairs(pairs):
        calls.append(len(pairs))
        return np.array([HashScorer(seed + index).value(order) for index, order in pairs])

    many = search_many([problem for problem, _ in work], score_pairs, [config for _, config in work])
    alone = [
        search(costs, HashScorer(seed + index), budget, config) for index, ((costs, budget), config) in enumerate(work)
    ]
    assert many == alone
    assert len(calls) == max((result.num_calls for result in alone), default=0)
    assert sum(calls) == sum(result.num_scored for result in alone)


@given(problems, scorers)
def test_without_exploration_and_cost_the_first_steps_are_greedy(problem, scorer):
    costs, budget = problem
    search(costs, scorer, budget, paper_config(iterations=2, exploration=0, cost_weight=0))
    if len(scorer.calls) == 2:
        can_grow = [
            (chunk,)
            for chunk in range(len(costs))
            if any(costs[chunk] + cost <= budget for other, cost in enumerate(costs) if other != chunk)
        ]
        best = max(scorer.value(order) for order in can_grow if order in scorer.calls[0])
        assert scorer.value(scorer.calls[1][0][:1]) == best
