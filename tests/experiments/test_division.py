import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from experiments.data.splits import divide

QUESTIONS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 8)), min_size=1, max_size=60)


@given(QUESTIONS, st.integers(0, 3))
def test_no_group_is_divided_and_the_order_does_not_matter(questions, seed):
    data = [d for d, _ in questions]
    parts = divide(data, [f"{d}/{g}" for d, g in questions], (0.6, 0.1, 0.3), seed)
    sides = {}
    for question, part in zip(questions, parts.tolist(), strict=True):
        assert sides.setdefault(question, part) == part
    turned = divide(data[::-1], [f"{d}/{g}" for d, g in questions[::-1]], (0.6, 0.1, 0.3), seed)
    assert turned[::-1].tolist() == parts.tolist()


def test_every_folder_is_divided_alike():
    data = ["a"] * 100 + ["b"] * 40
    parts = divide(data, [str(number) for number in range(140)], (0.6, 0.1, 0.3))
    assert np.bincount(parts[:100]).tolist() == [60, 10, 30]
    assert np.bincount(parts[100:]).tolist() == [24, 4, 12]


def test_the_seed_decides():
    data, groups = ["a"] * 50, [str(number) for number in range(50)]
    assert divide(data, groups, (1, 1), 0).tolist() == divide(data, groups, (1, 1), 0).tolist()
    assert divide(data, groups, (1, 1), 0).tolist() != divide(data, groups, (1, 1), 1).tolist()


def test_a_share_of_nothing_gets_nothing():
    assert set(divide(["a"] * 20, [str(number) for number in range(20)], (0.5, 0, 0.5)).tolist()) == {0, 2}
