import numpy as np
import pytest

from search.rounds import Incumbent


def test_before_anything_was_scored():
    incumbent = Incumbent(np.array([1]))
    assert (incumbent.order, incumbent.value, incumbent.cost, incumbent.num_scored) == ((), 0.0, 0, 0)


@pytest.mark.parametrize(
    ("orders", "best"),
    [
        ([(0,), (1,)], (1,)),  # lower cost
        ([(1, 2), (3,)], (3,)),  # equal cost: fewer candidates
        ([(2, 1), (1, 2)], (1, 2)),  # the better-ranked
    ],
)
def test_ties_within_a_round_and_between_rounds(orders, best):
    costs = np.array([5, 2, 2, 4])
    together, apart = Incumbent(costs), Incumbent(costs)
    together.update(orders, np.array([0.5, 0.5]))
    for order in orders:
        apart.update([order], np.array([0.5]))
    assert together.order == apart.order == best
    assert (together.orders, apart.orders) == ([best], [orders[0], best])


def test_the_best_value_stands_with_its_cost_and_what_was_spent():
    incumbent = Incumbent(np.array([5, 2]))
    incumbent.update([(0,), (1,)], np.array([-0.5, -0.75]))
    incumbent.update([(0, 1)], np.array([-0.25]))
    result = incumbent.result(utility=1.5, complete=True)
    assert (result.order, result.value, result.cost, result.utility) == ((0, 1), -0.25, 7, 1.5)
    assert (result.num_scored, result.num_calls, result.incumbents) == (3, 2, ((0,), (0, 1)))
    assert result.complete and result.error is None and result.tree is None
