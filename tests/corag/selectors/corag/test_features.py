import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from corag.errors import InputError
from corag.selectors.corag.features import (
    CURVE,
    check_recipe,
    curve_statistics,
    feature_dim,
    feature_vectors,
)


def test_a_curve_worked_by_hand():
    found = dict(zip(CURVE, curve_statistics([0.5, 0.8, 0.75]).tolist(), strict=True))
    assert [found[f"similarity_{rank}"] for rank in (1, 2, 3, 5, 10, 20)] == pytest.approx(
        [0.8, 0.75, 0.5, 0.5, 0.5, 0.5]
    )
    assert found["mean"] == pytest.approx(2.05 / 3)
    assert found["deviation"] == pytest.approx(np.std([0.5, 0.8, 0.75]))
    # From 0.75 to 0.5, behind the second of three; 0.8 and 0.75 are near the best.
    assert found["largest_gap"] == pytest.approx(0.25)
    assert found["place_of_largest_gap"] == pytest.approx(1 / 3)
    assert found["share_near"] == pytest.approx(2 / 3)
    assert found["log_count"] == pytest.approx(np.log(4) / 10)


def test_short_curves():
    assert curve_statistics([]).tolist() == [0.0] * len(CURVE)
    alone = dict(zip(CURVE, curve_statistics([0.4]).tolist(), strict=True))
    assert (alone["largest_gap"], alone["place_of_largest_gap"], alone["share_near"]) == (0.0, 0.0, 1.0)


@given(arrays.arrays(np.float64, st.integers(0, 30), elements=st.floats(-1, 1)), st.randoms(use_true_random=False))
def test_a_curve_is_finite_and_knows_no_order(similarities, random):
    shuffled = list(similarities)
    random.shuffle(shuffled)
    found = curve_statistics(similarities)
    assert np.isfinite(found).all() and found.dtype == np.float32
    np.testing.assert_allclose(curve_statistics(shuffled), found, atol=1e-6)


def test_the_recipe_orders_the_parts():
    queries, candidates = np.ones((2, 3)), np.full((2, 3), 2.0)
    similarities = [[0.5], [0.7, 0.1]]
    together = feature_vectors(("curve", "candidates", "query"), queries, candidates, similarities)
    assert together.shape == (2, feature_dim(("curve", "candidates", "query"), 3)) == (2, len(CURVE) + 6)
    np.testing.assert_array_equal(together[1, : len(CURVE)], curve_statistics([0.7, 0.1]))
    assert together[0, len(CURVE) :].tolist() == [2.0] * 3 + [1.0] * 3
    assert feature_vectors(("query", "curve"), np.zeros((0, 3)), np.zeros((0, 3)), []).shape == (0, 3 + len(CURVE))


@pytest.mark.parametrize("recipe", [(), ("query", "query"), ("query", "text")])
def test_recipes_that_are_none(recipe):
    with pytest.raises(InputError):
        check_recipe(recipe)
