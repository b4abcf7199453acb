from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from corag.errors import InputError
from experiments.evaluation.leads import diversity, lead


def test_diversity_by_hand():
    found = diversity(["a", "b", "c"], np.array([[1, 0, 0], [0, 0.5, 0.5], [0.2, 0.2, 0.2], [0, 0, 1.0]]))
    third = 1 / 3
    assert found["questions"] == 4
    assert found["shares"] == pytest.approx({"a": (1 + third) / 4, "b": (0.5 + third) / 4, "c": (0.5 + third + 1) / 4})
    assert found["differ"] == pytest.approx(3 / 4)
    assert (found["best"], found["best_mean"]) == ("c", pytest.approx(1.7 / 4))
    assert found["oracle_mean"] == pytest.approx(2.7 / 4)
    assert found["gain"] == pytest.approx(2.7 / 1.7 - 1)
    assert found["low"] < found["gain"] < found["high"]


def test_one_reranker_leaves_nothing_to_choose():
    found = diversity(["a"], np.array([[0.3], [0.0]]))
    assert (found["shares"], found["differ"], found["gain"], found["low"], found["high"]) == (
        {"a": 1.0},
        0.0,
        0.0,
        0.0,
        0.0,
    )


def test_nothing_right_is_no_gain():
    assert diversity(["a", "b"], np.zeros((3, 2)), resamples=10)["gain"] == 0.0


@pytest.mark.slow
@given(arrays(float, st.tuples(st.integers(1, 8), st.just(3)), elements=st.floats(0, 1)), st.integers(0, 9))
def test_an_oracle_is_never_worse(scores, seed):
    found = diversity(["a", "b", "c"], scores, resamples=20, seed=seed)
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert found["oracle_mean"] >= found["best_mean"] - 1e-12
    assert -1e-12 <= found["low"] <= found["high"]
    assert diversity(["a", "b", "c"], scores, resamples=20, seed=seed) == found


@pytest.mark.parametrize("scores", [np.zeros((0, 2)), np.zeros((3, 1)), np.zeros(2)])
def test_scores_must_have_a_row_and_a_column_for_each(scores):
    with pytest.raises(InputError, match="a column for each"):
        diversity(["a", "b"], scores)


def rows_of(*figures):
    names = ("full_evidence", "evidence_recall", "chunks", "f1", "cost_tokens")
    return [dict(zip(names, row, strict=False)) for row in figures]


@pytest.mark.slow
def test_the_interval_of_a_mean():
    zeros = rows_of(*[(0, 0, 1, 0.0)] * 100)
    found = lead(rows_of(*[(0, 0, 1, 0.25)] * 100), zeros)
    assert found["f1"] == found["f1_low"] == found["f1_high"] == 0.25
    found = lead(rows_of(*[(0, 0, 1, 0.0), (0, 0, 1, 1.0)] * 50), zeros)
    assert 0.38 < found["f1_low"] < 0.45 < found["f1"] < 0.55 < found["f1_high"] < 0.62


def test_leads_by_hand():
    three = rows_of((1, 1.0, 3, 0.5, 30), (1, 1.0, 3, 1.0, 30))
    cut = rows_of((1, 1.0, 1, 0.5, 10), (0, 0.5, 2, 0.0, 20))
    found = lead(cut, three)
    assert found["tes"] == pytest.approx(0.5 / log(2.5) - 1 / log(4))
    assert found["recall_tes"] == pytest.approx(0.75 / log(2.5) - 1 / log(4))
    assert (found["full_evidence"], found["f1"], found["share_of_tokens"]) == (-0.5, -0.5, 0.5)
    assert all(found[f"{name}_low"] <= found[name] <= found[f"{name}_high"] for name in ("tes", "f1", "recall_tes"))
    same = lead(three, three, resamples=20)
    assert all(value == 0 for name, value in same.items() if name != "share_of_tokens")


def test_equal_seeds_give_equal_intervals():
    rng = np.random.default_rng(3)
    one, two = (rows_of(*zip(*rng.integers(1, 9, size=(5, 9)), strict=True)) for _ in range(2))
    first, again, other = (lead(one, two, resamples=40, seed=seed) for seed in (0, 0, 1))
    assert first == again and first != other
    assert first["tes"] == other["tes"]


def test_only_questions_that_both_answered_count():
    ours = [*rows_of((1, 1.0, 2, 1.0, 10), (1, 1.0, 2, 1.0, 10)), {"failed": 1}]
    theirs = [*rows_of((0, 0.0, 2, 0.5, 10)), {"failed": 1}, *rows_of((1, 1.0, 2, 0.0, 10))]
    assert lead(ours, theirs)["f1"] == 0.5
    nothing = lead(ours[2:], theirs[2:])
    assert nothing == {"share_of_tokens": None}
