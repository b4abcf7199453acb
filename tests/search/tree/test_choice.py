import pytest

from search import search
from tests.search.worlds import TableScorer, paper_config


def pick(choice, table, costs, budget, **settings):
    config = paper_config(iterations=50, choice=choice, exploration=0, **settings)
    return search(costs, TableScorer(table), budget, config).order


# Costs 4 and 2 of 8. (0, 1) gives a worth 1.0; W/n of (0,): (0.75+1)/2, of (1,): (0.5+0)/2.
TABLE = {(0,): 0.75, (1,): 0.5, (0, 1): 1.0, (1, 0): 0.0}


@pytest.mark.parametrize(
    ("choice", "cost_weight", "expected"),
    [
        ("value", 9.0, (0, 1)),  # the weight only steers the walk
        ("value-minus-cost", 0.5, (0, 1)),  # 1-0.375=0.625 | 0.75-0.25=0.5 | 0.5-0.125=0.375
        ("value-minus-cost", 1.1, (1,)),  # 1-0.825=0.175 | 0.75-0.55=0.2 | 0.5-0.275=0.225
        ("mean", 0.5, (0, 1)),  # 1 | 0.875 | 0.25
        ("utility", 0.5, (0,)),  # 1-0.375=0.625 | 0.875-0.25=0.625, cheaper | 0.25-0.125=0.125
    ],
)
def test_choice_by_hand(choice, cost_weight, expected):
    assert pick(choice, TABLE, [4, 2], 8, cost_weight=cost_weight) == expected


def test_mean_and_utility_may_turn_away_from_an_incumbent():
    # 1: (0,) leads with 0.75.  2: (0, 1) is worth 0, so (0,) falls to 0.375 and (1,) leads with 0.5.
    table = {(0,): 0.75, (1,): 0.5, (0, 1): 0.0, (1, 0): 0.0}
    config = paper_config(iterations=2, exploration=0, cost_weight=0, choice="mean")
    assert search([1, 1], TableScorer(table), 2, config).incumbents == ((0,), (1,))


@pytest.mark.parametrize("choice", ["value", "value-minus-cost", "mean", "utility"])
@pytest.mark.parametrize(
    ("costs", "budget", "expected"),
    [
        ([2, 1], 3, (1,)),  # lower cost
        ([0, 0], 1, (0,)),  # equal cost: fewer candidates, then the better rank
        ([0, 3, 0], 3, (0,)),
    ],
)
def test_ties(choice, costs, budget, expected):
    def always_half(orders):
        return [0.5] * len(orders)

    config = paper_config(iterations=50, choice=choice, exploration=0, cost_weight=0)
    assert search(costs, always_half, budget, config).order == expected


def test_a_later_tie_with_fewer_tokens_replaces_the_incumbent():
    # Both pairs are worth 1; (0, 1) costs 5 and is found first, (1, 2) costs 4.
    table = {(0,): 0.75, (1,): 0.5, (2,): 0.0, (0, 1): 1.0, (0, 2): 0.0, (1, 0): 0.0, (1, 2): 1.0}
    config = paper_config(iterations=3, exploration=0, cost_weight=0, max_length=2)
    result = search([3, 2, 2], TableScorer(table), 6, config)
    assert result.incumbents == ((0,), (0, 1), (1, 2))


def test_negative_values_are_chosen_over_nothing():
    result = search([1], lambda orders: [-3.0], 1)
    assert (result.order, result.value) == ((0,), -3.0)
