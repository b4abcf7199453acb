import numpy as np
import pytest

from agent import AgentError
from agent.configurations import ConfigurationGrid
from tests.agent.worlds import RANGES, toy_config, toy_table

GRID = ConfigurationGrid(
    np.array([0, 0, 1, 1]),
    np.array([[1, 0.0, 0.0], [64, 3.0, 0.3], [8, 0.0, 0.0], [8, 0.0, 0.3]]),
)


def test_the_nearest_of_the_same_reranker():
    # On the log scale 7 iterations are nearer to 1 than to 64, and 9 nearer to 64 (8 is the middle).
    settings = [[7, 1.5, 0.15], [9, 1.5, 0.15], [1, 0.0, 0.1], [1, 0.0, 0.2]]
    assert GRID.nearest([0, 0, 1, 1], settings, RANGES).tolist() == [0, 1, 2, 3]
    # Both are as far: the first.
    assert GRID.nearest([1], [[8, 0.0, 0.15]], RANGES).tolist() == [2]
    assert GRID.nearest([], np.zeros((0, 3)), RANGES).tolist() == []


def test_a_configuration_is_nearest_to_itself():
    assert GRID.nearest(GRID.reranker, GRID.settings, RANGES).tolist() == [0, 1, 2, 3]


def test_a_reranker_that_was_never_measured():
    with pytest.raises(AgentError, match="reranker label 2 has no measured configuration"):
        GRID.nearest([0, 2], [[1, 0, 0]] * 2, RANGES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": GRID}, "grid and utility belong together"),
        ({"grid": GRID, "utility": np.zeros((40, 3))}, "utility has 3 columns for 4 configurations"),
        ({"grid": GRID, "utility": np.full((40, 4), np.nan)}, "utility must be finite; row 0 holds nan"),
    ],
)
def test_tables_with_a_grid_that_does_not_fit(changes, message):
    with pytest.raises(AgentError, match=message):
        toy_table(**changes)


def test_a_grid_has_to_measure_every_reranker():
    grid = ConfigurationGrid(np.array([0]), np.array([[1, 0.0, 0.0]]))
    with pytest.raises(AgentError, match=r"the grid measured the reranker labels \[0\], but the agent has 2"):
        toy_table(grid=grid, utility=np.zeros((40, 1))).check_fits(toy_config())


def test_a_grid_needs_settings_for_each_label():
    with pytest.raises(AgentError, match="one label and 3 settings per configuration"):
        ConfigurationGrid(np.array([0, 1]), np.zeros((2, 2)))
