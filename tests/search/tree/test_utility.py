import numpy as np
import pytest

from search.tree.utility import cost_share, exploration_bonus, mean_reward


def test_terms_of_eq_5_by_hand():
    # W=3, n=4, N=20, c=2.4, cost 5 of 10: 3/4; 2.4*sqrt(2.9957323/4)=2.4*0.8654092; 5/10.
    visits = np.array([4])
    assert mean_reward(np.array([3.0]), visits) == pytest.approx([0.75])
    assert exploration_bonus(visits, 20, 2.4) == pytest.approx([2.0769820], abs=1e-6)
    assert cost_share(np.array([5]), 10) == pytest.approx([0.5])


def test_first_visit_of_all_has_no_bonus():
    assert exploration_bonus(np.array([1]), np.array([1]), 2.4) == [0.0]
