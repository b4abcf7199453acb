import numpy as np
import pytest

from agent import AgentError
from agent.training.data import check_disjoint, epoch_order
from tests.agent.worlds import toy_columns, toy_config, toy_table


def replaced(name, index, value):
    array = np.array(toy_columns()[name], dtype=float)
    array[index] = value
    return {name: array}


def test_arrays_take_their_types():
    table = toy_table()
    assert [array.dtype for array in (table.features, table.settings, table.weight)] == [np.float32] * 3
    assert table.reranker.dtype == np.int64
    assert len(table) == 40
    assert toy_table(quality=None).quality is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (replaced("features", (3, 1), np.nan), "features must be finite; row 3 holds nan"),
        (replaced("settings", (2, 0), np.inf), "settings must be finite; row 2"),
        (replaced("weight", 0, -1), "weight must be at least 0, got -1"),
        (replaced("reranker", 0, 0), "label indices, got dtype float64"),
        ({"reranker": np.full(40, -1)}, "labels must be at least 0, got -1"),
        ({"reranker": np.zeros((40, 1), int)}, r"1 axis, got shape \(40, 1\)"),
        ({"features": np.zeros(40)}, r"features must have 2 axes, got shape \(40,\)"),
        ({"features": "words"}, "features must be an array of numbers"),
        ({"weight": np.ones(39)}, "weight has 39 rows for 40 ids"),
        ({"settings": np.ones((40, 2))}, r"columns \('iterations', 'exploration', 'cost_weight'\)"),
    ],
)
def test_bad_columns(changes, message):
    with pytest.raises(AgentError, match=message):
        toy_table(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.ones((40, 7))}, "7 columns but feature_dim is 6.*'toy'"),
        ({"reranker": np.arange(40) % 3}, "label 2 needs to be below 2"),
        ({"quality": np.ones((40, 3))}, "quality has 3 columns for 2 rerankers"),
        (replaced("settings", (5, 0), 100), "question 'q5' leave the ranges: {'iterations': 100.0"),
    ],
)
def test_tables_that_do_not_fit(changes, message):
    with pytest.raises(AgentError, match=message):
        toy_table(**changes).check_fits(toy_config())


def test_too_little_to_learn_from():
    with pytest.raises(AgentError, match="at least 2 questions, got 1"):
        toy_table(1).check_trainable()
    with pytest.raises(AgentError, match=r"2 different best rerankers.*got labels \[0\]"):
        toy_table(weight=np.arange(40) % 2 == 0).check_trainable()
    toy_table(2).check_trainable()


def test_a_question_in_both_splits():
    check_disjoint(toy_table(), toy_table(prefix="v"))
    with pytest.raises(AgentError, match=r"10 questions are in both.*'q0'"):
        check_disjoint(toy_table(), toy_table(10))


def test_the_digest_sees_every_column():
    columns = toy_columns()
    digests = {toy_table().digest(), toy_table(prefix="other").digest(), toy_table(quality=None).digest()}
    for name in ("features", "settings", "weight", "quality"):
        digests.add(toy_table(**{name: columns[name] + 1}).digest())
    digests.add(toy_table(reranker=1 - columns["reranker"]).digest())
    assert len(digests) == 8
    assert toy_table().digest() == toy_table().digest()


def test_the_order_of_an_epoch_derives_from_seed_and_epoch():
    assert sorted(epoch_order(50, 0, 0)) == list(range(50))
    assert np.array_equal(epoch_order(50, 3, 4), epoch_order(50, 3, 4))
    orders = {tuple(epoch_order(50, seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9
