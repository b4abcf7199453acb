import dataclasses
from math import inf, nan

import numpy as np
import pytest

from search import SearchConfig, SearchError


def test_defaults():
    assert dataclasses.asdict(SearchConfig()) == {
        "iterations": 10, "exploration": 2.4, "cost_weight": 0.1,
        "backup": "best-child", "visits": "total", "choice": "value",
        "max_length": None, "deadline_ms": None, "on_error": "raise",
        "policy": "bayesian", "max_scored": None, "batch_size": 8, "patience": 8.0, "beam_width": 3,
        "prefilter": 1.0, "seed": 0, "parallel": 1,
    }  # fmt: skip


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SearchConfig().iterations = 3


def test_numpy_numbers_are_numbers():
    SearchConfig(iterations=np.int64(3), exploration=np.float32(1.5), cost_weight=0, max_length=np.int32(1))


@pytest.mark.parametrize("field", ["iterations", "max_length", "max_scored", "beam_width", "parallel"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3"])
def test_counts(field, value):
    with pytest.raises(SearchError, match=rf"{field} is {value!r}; it must be an integer of at least 1"):
        SearchConfig(**{field: value})


@pytest.mark.parametrize(
    ("field", "value", "least"), [("batch_size", 3, 4), ("batch_size", None, 4), ("seed", -1, 0), ("seed", 0.5, 0)]
)
def test_counts_with_another_least(field, value, least):
    with pytest.raises(SearchError, match=rf"{field} is {value!r}; it must be an integer of at least {least}"):
        SearchConfig(**{field: value})


@pytest.mark.parametrize("field", ["exploration", "cost_weight", "patience", "deadline_ms"])
@pytest.mark.parametrize("value", [-0.1, nan, inf, True, "1"])
def test_weights(field, value):
    with pytest.raises(SearchError, match=rf"{field} is {value!r}; it must be a finite number of at least 0"):
        SearchConfig(**{field: value})


def test_patience_may_be_without_limit():
    assert SearchConfig(patience=None).patience is None


@pytest.mark.parametrize(("old", "new"), [("model", "bayesian"), ("carrot", "public-code")])
def test_former_names_of_policies_are_taken(old, new):
    assert SearchConfig(policy=old) == SearchConfig(policy=new)
    assert dataclasses.replace(SearchConfig(), policy=old).policy == new


@pytest.mark.parametrize("choice", ["mean", "utility"])
def test_choices_by_visits_need_a_tree(choice):
    for policy in ("paper", "public-code"):
        SearchConfig(policy=policy, choice=choice)
    with pytest.raises(
        SearchError, match=f"choice is '{choice}', which policy 'beam' .*set policy to paper or public-code"
    ):
        SearchConfig(policy="beam", choice=choice)


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("backup", "best-child, all-children, utility"),
        ("visits", "total, parent"),
        ("choice", "value, value-minus-cost, mean, utility"),
        ("on_error", "raise, keep"),
        ("policy", "bayesian, paper, public-code, best-first, beam, greedy, random"),
    ],
)
def test_names(field, names):
    with pytest.raises(SearchError, match=f"{field} is 'best'; it must be one of {names}"):
        SearchConfig(**{field: "best"})
