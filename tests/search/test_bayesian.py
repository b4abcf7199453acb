"""Policy `bayesian`: what it keeps to, and what it finds.

Golden searches have a problem, settings, values, and the rounds that came of them. After a change of the search that is
meant, write them again and read the difference:

    python -m tests.search.test_bayesian
"""

import json
from dataclasses import asdict
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search import SearchConfig, exhaustive, search
from search.bayesian import MAX_PLACES
from tests.paths import GOLDEN
from tests.search.worlds import FAMILY_BUDGET, FAMILY_LENGTH, HashScorer, TableScorer, family

sizes = st.tuples(st.lists(st.integers(1, 6), min_size=1, max_size=14), st.integers(3, 14))


@pytest.mark.slow
@settings(max_examples=40)
@given(sizes, st.integers(0, 10**6), st.sampled_from([(8, 3), (0.25, 0), (1e-7, 0), (3e5, -7e5)]))
def test_shifting_and_scaling_values_changes_nothing(problem, seed, line):
    costs, budget = problem
    factor, shift = line
    plain, scaled = HashScorer(seed), HashScorer(seed)
    config = SearchConfig(policy="bayesian", iterations=5)
    search(costs, plain, budget, config)
    search(costs, lambda orders: [shift + factor * value for value in scaled(orders)], budget, config)
    assert scaled.calls == plain.calls


def test_candidates_that_do_not_fit_change_nothing_but_the_names():
    plain, padded = HashScorer(4), HashScorer(4)
    name = [1, 3, 4, 6, 7]

    def renamed(orders):
        return padded([tuple(name.index(chunk) for chunk in order) for order in orders])

    config = SearchConfig(policy="bayesian")
    few = search([2, 3, 1, 2, 4], plain, 8, config)
    many = search([9, 2, 9, 3, 1, 9, 2, 4], renamed, 8, config)
    assert padded.calls == plain.calls
    assert many.order == tuple(name[chunk] for chunk in few.order)


def test_equal_values_end_the_search_once_every_candidate_was_seen():
    scorer = TableScorer({})
    scorer.table = type("Half", (dict,), {"__missing__": lambda self, order: 0.5})()
    for costs, budget in (([1] * 12, 6), ([1] * 60, 5)):
        scorer.calls = []
        search(costs, scorer, budget, SearchConfig(policy="bayesian", iterations=50))
        assert {chunk for order in scorer.asked for chunk in order} == set(range(len(costs)))
        assert len(scorer.calls) < 8


@pytest.mark.slow
def test_finds_most_optima_of_the_family_with_few_orders():
    config = SearchConfig(policy="bayesian", iterations=100, max_scored=48, max_length=FAMILY_LENGTH)
    num_found = 0
    for costs, scorer in family(3000, per_size=4):
        result = search(costs, scorer, FAMILY_BUDGET, config)
        best = exhaustive(costs, scorer, FAMILY_BUDGET, FAMILY_LENGTH)
        num_found += result.value == pytest.approx(best.value, abs=1e-9)
        assert result.num_scored <= 48
    assert num_found >= 17  # of 20


def test_of_many_that_fit_together_the_best_ranked_are_considered():
    result = search(
        np.ones(900, dtype=int),
        lambda orders: np.array([float(len(order)) for order in orders]),
        900,
        SearchConfig(policy="bayesian", iterations=2),
    )
    assert len(result.order) == 362 == isqrt(MAX_PLACES) and max(result.order) == 361


PROBLEMS = {
    "bayesian": ([3, 2, 4, 1, 3], 8, SearchConfig(policy="bayesian")),
    "bayesian_large": ([3, 2, 4, 1, 3] * 5, 12, SearchConfig(policy="bayesian", iterations=5)),
}


RECORDED = ("order", "value", "utility", "cost", "num_scored", "num_calls", "incumbents", "complete")


def record(costs, budget, config, scorer):
    result = search(costs, scorer, budget, config)
    return {
        "costs": costs,
        "budget": budget,
        "config": asdict(config),
        "result": {name: getattr(result, name) for name in RECORDED},
        "nodes": [
            {"order": order, "value": scorer.table[order], "round": number}
            for number, orders in enumerate(scorer.calls)
            for order in orders
        ],
    }


def replay(golden):
    """Search again with the stored values only, and record what came of it."""
    scorer = TableScorer({tuple(node["order"]): node["value"] for node in golden["nodes"]})
    again = record(golden["costs"], golden["budget"], SearchConfig(**golden["config"]), scorer)
    # Settings that came later have their defaults.
    again["config"] = {name: again["config"][name] for name in golden["config"]}
    return json.loads(json.dumps(again))


@pytest.mark.parametrize("name", PROBLEMS)
def test_golden(name):
    golden = json.loads((GOLDEN / f"search_{name}.json").read_text())
    again = replay(golden)
    assert again["result"].pop("utility") == pytest.approx(golden["result"].pop("utility"), rel=1e-12)
    assert again == golden


if __name__ == "__main__":
    for name, (costs, budget, config) in PROBLEMS.items():
        golden = record(costs, budget, config, HashScorer(seed=1, levels=2**10))
        (GOLDEN / f"search_{name}.json").write_text(json.dumps(golden, indent=1) + "\n")
