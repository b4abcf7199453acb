import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import AgentError, FixedConfiguration, Ranges
from tests.agent.worlds import RANGES


def test_the_unit_scale_worked_by_hand():
    # 8 is half-way from 1 to 64 on a log scale.
    settings = np.array([[8, 1.5, 0.03], [1, 0.0, 0.0], [64, 3.0, 0.3]])
    expected = [[0.5, 0.5, 0.1], [0, 0, 0], [1, 1, 1]]
    np.testing.assert_allclose(RANGES.to_unit(settings), expected, atol=1e-12)
    np.testing.assert_allclose(RANGES.from_unit(expected), settings, atol=1e-12)


@given(st.integers(1, 64), st.floats(0, 3), st.floats(0, 0.3))
def test_there_and_back(iterations, exploration, cost_weight):
    settings = np.array([[iterations, exploration, cost_weight]])
    back = RANGES.from_unit(RANGES.to_unit(settings))
    assert back[0, 0] == iterations
    np.testing.assert_allclose(back, settings, atol=1e-12)


def test_a_range_of_one_value():
    ranges = Ranges((10, 10), (2.4, 2.4), (0.1, 0.1))
    settings = [[10, 2.4, 0.1]]
    assert ranges.to_unit(settings).tolist() == [[0.0, 0.0, 0.0]]
    assert ranges.from_unit([[0.7, 0.0, 1.0]]).tolist() == settings


def test_contains_forgives_float32_rounding_only():
    settings = np.array([[64, 3.0, 0.3], [65, 1, 0.1], [0.5, 1, 0.1], [8, 1, 0.301]], dtype=np.float32)
    assert RANGES.contains(settings).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("name", "bounds", "rule"),
    [
        ("iterations", (0, 5), "at least 1, got 0"),
        ("iterations", (1.0, 5.0), "integer"),
        ("iterations", (5, 1), "low <= high"),
        ("exploration", (-1.0, 1.0), "at least 0"),
        ("exploration", (0.0, float("nan")), "finite"),
        ("cost_weight", (0.1,), "pair"),
        ("cost_weight", 0.1, "pair"),
        ("cost_weight", (True, 2), "finite number"),
    ],
)
def test_bad_ranges(name, bounds, rule):
    good = {"iterations": (1, 2), "exploration": (0.0, 1.0), "cost_weight": (0.0, 1.0)}
    with pytest.raises(AgentError, match=rf"(?s){name}.*{rule}|{rule}.*{name}"):
        Ranges(**{**good, name: bounds})


def test_a_bad_fixed_configuration():
    with pytest.raises(AgentError, match=r"fixed\.iterations must be an integer of at least 1, got 0"):
        FixedConfiguration("first", 0, 2.4, 0.1)
