"""The presets against searches written from the sources' descriptions, node by node."""

import random
from functools import cache
from math import isclose

import pytest

from search import PRESETS, SearchConfig, SearchError, search
from tests.effort import FULL
from tests.search.naive import Naive, Paper, PublicCode

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


def test_the_settings_of_the_sources():
    common = {"policy": "paper", "iterations": 10, "exploration": 2.4, "cost_weight": 0.1}
    assert {
        "paper": {**common, "backup": "utility", "visits": "total", "choice": "utility"},
        "public-code": {**common, "backup": "all-children", "visits": "parent", "choice": "value"},
    } == PRESETS


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
