"""The tree search against two plain ones: the textbook's, and the sources' descriptions."""

from __future__ import annotations

import json
import random
from functools import cache
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search import SearchConfig, SearchError, exhaustive, search
from tests.effort import FULL
from tests.search.golden import GOLDEN, PROBLEMS, replay
from tests.search.naive import Naive, Paper, PublicCode
from tests.search.reference import search_by_objects
from tests.search.worlds import HashScorer, configs, paper_config, problems, scorers


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


NUM_PROBLEMS = 2000 if FULL else 500
SOURCES: dict[str, type[Naive]] = {"paper": Paper, "public-code": PublicCode}


def random_problem(seed):
    """Costs, budget, logits that no two orders share, and the settings, which the presets' stand among."""
    draw = random.Random(seed)
    costs = [draw.randint(1, 9) for _ in range(draw.randint(0, 7))]
    values = cache(lambda order: random.Random(f"{seed} {order}").gauss(-1, 4))
    given = {"iterations": draw.randint(1, 14), "exploration": draw.choice([0.0, 0.5, 2.4]), "cost_weight": 0.3}
    return costs, draw.randint(1, 30), values, given if seed % 2 else {}


@pytest.mark.slow
@pytest.mark.parametrize("preset", SOURCES)
def test_presets_are_their_sources_node_by_node(preset):
    num_nodes = 0
    for seed in range(NUM_PROBLEMS):
        costs, budget, value_of, given = random_problem(seed)
        config = SearchConfig.preset(preset, **given)
        source = SOURCES[preset](costs, value_of, budget, config.exploration, config.cost_weight)
        best = source.run(config.iterations)
        found = search(costs, lambda orders: [value_of(order) for order in orders], budget, config)  # noqa: B023
        tree = found.tree
        assert found.order == best, seed
        assert {tree.order(node): int(tree.visits[node]) for node in range(len(tree))} == source.n, seed
        for node in range(1, len(tree)):
            order = tree.order(node)
            assert tree.value[node] == source.V[order], (seed, order)
            assert tree.total[node] == pytest.approx(source.w[order], rel=1e-9, abs=1e-9), (seed, order)
        if best:
            assert isclose(found.utility, source.utility(best, source.N(best)), rel_tol=1e-9, abs_tol=1e-9), seed
        num_nodes += len(tree)
    assert num_nodes > 10 * NUM_PROBLEMS


def test_what_is_given_beside_a_preset_wins():
    config = SearchConfig.preset("paper", exploration=1, choice="value", max_scored=7)
    assert (config.exploration, config.choice, config.max_scored, config.backup) == (1, "value", 7, "utility")
    with pytest.raises(SearchError, match="preset is 'Paper'; it must be one of paper, public-code"):
        SearchConfig.preset("Paper")


def test_policy_and_preset_of_the_public_code_search_alike():
    costs, budget, value_of, _ = random_problem(7)

    def searched(config):
        return search(costs, lambda orders: [value_of(order) for order in orders], budget, config)

    assert searched(SearchConfig(policy="public-code")) == searched(SearchConfig.preset("public-code"))


def test_what_goes_up_is_the_utility_before_the_update():
    # After the first round n is 1 everywhere and N is 4: 3 children and the root.
    values = {(0,): 5.0, (1,): 1.0, (2,): 0.0, (0, 1): 2.0, (0, 2): 3.0}
    config = SearchConfig.preset("paper", iterations=2, exploration=1.0, max_length=2)
    tree = search([1, 1, 1], lambda orders: [values[order] for order in orders], 3, config).tree
    expected = 5.0 + 1.0 * (1.791759469228055**0.5) - 0.1 / 3  # N is 6, its own new children among them: ln 6
    assert (tree.total[1], tree.visits[1]) == (pytest.approx(5.0 + expected), 2)
    assert (tree.total[0], tree.visits[0]) == (pytest.approx(expected), 2)


@pytest.mark.parametrize("name", PROBLEMS)
def test_golden(name):
    golden = json.loads((GOLDEN / f"search_{name}.json").read_text())
    again = replay(golden)
    assert again["result"].pop("utility") == pytest.approx(golden["result"].pop("utility"), rel=1e-12)
    assert again == golden
