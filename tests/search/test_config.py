import dataclasses
from math import inf, nan

import numpy as np
import pytest

from search import SearchConfig, SearchError


def test_defaults():
    assert dataclasses.astuple(SearchConfig()) == (10, 2.4, 0.1, "best-child", "total", "value", None)


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SearchConfig().iterations = 3


def test_numpy_numbers_are_numbers():
    SearchConfig(iterations=np.int64(3), exploration=np.float32(1.5), cost_weight=0, max_length=np.int32(1))


@pytest.mark.parametrize("field", ["iterations", "max_length"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3"])
def test_counts(field, value):
    with pytest.raises(SearchError, match=rf"{field} is {value!r}; it must be an integer of at least 1"):
        SearchConfig(**{field: value})


@pytest.mark.parametrize("field", ["exploration", "cost_weight"])
@pytest.mark.parametrize("value", [-0.1, nan, inf, True, "1", None])
def test_weights(field, value):
    with pytest.raises(SearchError, match=rf"{field} is {value!r}; it must be a finite number of at least 0"):
        SearchConfig(**{field: value})


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("backup", "best-child, all-children"),
        ("visits", "total, parent"),
        ("choice", "value, value-minus-cost, mean, utility"),
    ],
)
def test_names(field, names):
    with pytest.raises(SearchError, match=f"{field} is 'best'; it must be one of {names}"):
        SearchConfig(**{field: "best"})
