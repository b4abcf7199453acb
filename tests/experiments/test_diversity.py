import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from corag.errors import InputError
from experiments.evaluation.diversity import diversity, mean_interval


def test_diversity_by_hand():
    found = diversity(["a", "b", "c"], np.array([[1, 0, 0], [0, 0.5, 0.5], [0.2, 0.2, 0.2], [0, 0, 1.0]]))
    third = 1 / 3
    assert found.questions == 4
    assert found.shares == pytest.approx({"a": (1 + third) / 4, "b": (0.5 + third) / 4, "c": (0.5 + third + 1) / 4})
    assert found.differ == pytest.approx(3 / 4)
    assert (found.best, found.best_mean) == ("c", pytest.approx(1.7 / 4))
    assert found.oracle_mean == pytest.approx(2.7 / 4)
    assert found.gain == pytest.approx(2.7 / 1.7 - 1)
    assert found.low < found.gain < found.high


def test_one_reranker_leaves_nothing_to_choose():
    found = diversity(["a"], np.array([[0.3], [0.0]]))
    assert (found.shares, found.differ, found.gain, found.low, found.high) == ({"a": 1.0}, 0.0, 0.0, 0.0, 0.0)


def test_nothing_right_is_no_gain():
    assert diversity(["a", "b"], np.zeros((3, 2)), resamples=10).gain == 0.0


@given(arrays(float, st.tuples(st.integers(1, 8), st.just(3)), elements=st.floats(0, 1)), st.integers(0, 9))
def test_an_oracle_is_never_worse(scores, seed):
    found = diversity(["a", "b", "c"], scores, resamples=20, seed=seed)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.oracle_mean >= found.best_mean - 1e-12
    assert -1e-12 <= found.low <= found.high
    assert diversity(["a", "b", "c"], scores, resamples=20, seed=seed) == found


@pytest.mark.parametrize("scores", [np.zeros((0, 2)), np.zeros((3, 1)), np.zeros(2)])
def test_scores_must_have_a_row_and_a_column_for_each(scores):
    with pytest.raises(InputError, match="a column for each"):
        diversity(["a", "b"], scores)


def test_the_interval_of_a_mean():
    assert mean_interval(np.full(5, 0.25)) == (0.25, 0.25)
    low, high = mean_interval(np.array([0.0, 1.0] * 50))
    assert 0.38 < low < 0.45 < 0.55 < high < 0.62
