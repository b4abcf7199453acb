"""What agents learn from labels."""

from dataclasses import replace

import numpy as np
import pytest

from corag.errors import DataError
from experiments.agents.targets import TargetConfig, best_configuration, best_single, make_targets, utility
from tests.experiments.worlds import labels_of, labels_of_methods

# Section 5.2.2: best ROUGE-L; questions whose best reranker is better than the next by more than 10%.
PAPER = TargetConfig("rougeL", 0.0, 0.1)


def targets_of(labels, **settings):
    return make_targets(labels, TargetConfig(**{"metric": "rougeL", "price": 0.0, **settings}), ("query",))


TABLE = {
    "q1": [0.5, 0.5, 0.5, 0.1],  # three equals, of which b chose the fewest tokens
    "q2": [0.6, 0.6, 0.4, 0.2],  # a is clearly better, by either settings
    "q3": [0.44, 0.1, 0.40, 0.1],  # 10% better and not more
    "q4": [0.0, 0.0, 0.0, 0.0],  # nothing answers it
}
TOKENS = {query: [50, 50, 40 if query == "q1" else 50, 50] for query in TABLE}


def test_targets_worked_by_hand(tmp_path):
    table = make_targets(labels_of(tmp_path, TABLE, cost_tokens=TOKENS), PAPER, ("query",))
    assert table.ids == ("folder/q1", "folder/q2", "folder/q3", "folder/q4")
    assert table.label.tolist() == [1, 0, 0, 0]
    np.testing.assert_allclose(
        table.settings, [[2, 0.1, 0.3], [5, 0.3, 0.15], [2, 0.1, 0.3], [5, 0.3, 0.15]], rtol=1e-6
    )
    np.testing.assert_allclose(table.quality, [[0.5, 0.5], [0.6, 0.4], [0.44, 0.4], [0, 0]], rtol=1e-6)
    assert table.weight.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("margin", "weights"),
    [(-1.0, [1, 1, 1, 0]), (0.0, [0, 1, 1, 0]), (0.09, [0, 1, 1, 0]), (0.49, [0, 1, 0, 0]), (0.51, [0] * 4)],
)
def test_the_papers_rule(tmp_path, margin, weights):
    labels = labels_of(tmp_path, TABLE)
    assert make_targets(labels, replace(PAPER, margin=margin), ("query",)).weight.tolist() == weights
    # Equals that are worth less than nothing, as their tokens have a price, are equals all the same.
    assert targets_of(labels, price=0.1, margin=margin).weight[3] == (margin < 0)


def test_utility_worked_by_hand(tmp_path):
    recall = {"q1": [0.0, 0.5, 1.0, 1.0], "q2": [None] * 4, "q3": [1.0] * 4, "q4": [0.0] * 4}
    tokens = {query: [256, 256, 128, 0] for query in TABLE}
    labels = labels_of(tmp_path, TABLE, evidence_recall=recall, cost_tokens=tokens)
    default = TargetConfig(price=0.1)
    values = utility(labels, default)
    # The mean of the recalls of the answer's words, which the table has, and of passages.
    np.testing.assert_allclose(values[0], [0.25 - 0.1, 0.5 - 0.1, 0.75 - 0.05, 0.55], rtol=1e-6)
    # Without gold passages the answer alone counts.
    np.testing.assert_allclose(values[1], [0.6 - 0.1, 0.6 - 0.1, 0.4 - 0.05, 0.2], rtol=1e-6)
    np.testing.assert_allclose(utility(labels, replace(default, price=0.0))[2], [0.72, 0.55, 0.7, 0.55], rtol=1e-6)
    # Not every configuration has a value.
    some = labels_of(tmp_path, TABLE, value={query: [0.5, 0.5, None, None] for query in TABLE})
    with pytest.raises(DataError, match="no question has value"):
        utility(some, TargetConfig("value"))
    assert best_configuration(labels, values).tolist()[:2] == [2, 0]
    # However small a lead is, it counts before tokens.
    assert best_configuration(labels, np.tile([0.5, 0.501, 0.5, 0.5], (4, 1))).tolist() == [1] * 4
    # b needs half the tokens: at a high price that is worth more than the 0.2 by which a is better.
    labels = labels_of(tmp_path, TABLE, cost_tokens={query: [256, 256, 128, 128] for query in TABLE})
    assert targets_of(labels).label.tolist()[1:3] == [0, 0]
    assert targets_of(labels, price=0.5).label.tolist()[1:3] == [1, 1]


@pytest.mark.parametrize(("other", "best"), [([0.7] * 8, 1), ([0.9] * 5 + [0.3] * 3, 0), ([0.4] * 8, 0)])
def test_the_default_stays_unless_another_is_ahead_beyond_chance(tmp_path, other, best):
    labels = labels_of_methods(tmp_path, [(0.5, value) for value in other], (50, 50), ("corag", "top-k"))
    assert best_single(labels, utility(labels, TargetConfig("rougeL", 0.0))) == best
