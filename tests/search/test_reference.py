"""The tree search against a plain one, written as in a textbook."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search import PRESETS, SearchConfig, search
from tests.search.reference import eq_5, search_by_objects
from tests.search.worlds import HashScorer, configs, problems, scorers


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


def test_what_goes_up_is_the_utility_before_the_update():
    # After the first round n is 1 everywhere and N is 4: 3 children and the root.
    values = {(0,): 5.0, (1,): 1.0, (2,): 0.0, (0, 1): 2.0, (0, 2): 3.0}
    config = SearchConfig(**{**PRESETS["paper"], "iterations": 2, "exploration": 1.0, "max_length": 2})
    tree = search([1, 1, 1], lambda orders: [values[order] for order in orders], 3, config).tree
    expected = eq_5(5.0, 1, 6, 1 / 3, 1.0, 0.1)  # N is 6, its own new children among them
    assert (tree.total[1], tree.visits[1]) == (pytest.approx(5.0 + expected), 2)
    assert (tree.total[0], tree.visits[0]) == (pytest.approx(expected), 2)
