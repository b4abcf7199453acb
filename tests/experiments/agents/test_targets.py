from dataclasses import replace

import numpy as np
import pytest

from corag.errors import InputError
from experiments.agents.targets import EVERY_QUESTION, PAPER, TargetConfig, best_single, make_targets, shrunk, utility
from tests.experiments.worlds import arrays_of


def targets_of(arrays, **settings):
    return make_targets(arrays, TargetConfig(**{"metric": "rougeL", "noise": 0.0, **settings}), ("query",))


TABLE = {
    "q1": [0.5, 0.5, 0.5, 0.1],  # three equals, of which b chose the fewest tokens
    "q2": [0.6, 0.6, 0.4, 0.2],  # a is clearly better, by either settings
    "q3": [0.44, 0.1, 0.40, 0.1],  # 10% better and not more
    "q4": [0.0, 0.0, 0.0, 0.0],  # nothing answers it
}
TOKENS = {query: [50, 50, 40 if query == "q1" else 50, 50] for query in TABLE}


def test_targets_worked_by_hand(tmp_path):
    table = make_targets(arrays_of(tmp_path, TABLE, cost_tokens=TOKENS), PAPER, ("query",))
    assert table.ids == ("folder/q1", "folder/q2", "folder/q3", "folder/q4")
    assert table.reranker.tolist() == [1, 0, 0, 0]
    np.testing.assert_allclose(
        table.settings, [[2, 0.1, 0.3], [5, 0.3, 0.15], [2, 0.1, 0.3], [5, 0.3, 0.15]], rtol=1e-6
    )
    np.testing.assert_allclose(table.quality, [[0.5, 0.5], [0.6, 0.4], [0.44, 0.4], [0, 0]], rtol=1e-6)
    assert table.weight.tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(table.utility, list(TABLE.values()), rtol=1e-6)
    assert table.grid.reranker.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("margin", "weights"),
    [(EVERY_QUESTION, [1, 1, 1, 0]), (0.0, [0, 1, 1, 0]), (0.09, [0, 1, 1, 0]), (0.49, [0, 1, 0, 0]), (0.51, [0] * 4)],
)
def test_the_papers_rule(tmp_path, margin, weights):
    arrays = arrays_of(tmp_path, TABLE)
    assert make_targets(arrays, replace(PAPER, margin=margin), ("query",)).weight.tolist() == weights


def test_the_lead_is_a_weight(tmp_path):
    arrays = arrays_of(tmp_path, TABLE)
    # Leads 0, 0.2, 0.04, 0: in units of the mean of those above 0.
    np.testing.assert_allclose(targets_of(arrays).weight, [0, 0.2 / 0.12, 0.04 / 0.12, 0], rtol=1e-5)
    # Within the noise there is no lead.
    np.testing.assert_allclose(targets_of(arrays, noise=0.05).weight, [0, 1, 0, 0], rtol=1e-5)
    assert targets_of(arrays, weighting="equal").weight.tolist() == [0, 1, 1, 0]
    assert targets_of(arrays, weighting="equal", noise=0.5).weight.tolist() == [0, 0, 0, 0]


def test_within_the_noise_the_cheaper_one_is_right(tmp_path):
    tokens = {query: [60, 50, 40, 40] for query in TABLE}
    arrays = arrays_of(tmp_path, TABLE, cost_tokens=tokens)
    assert targets_of(arrays).reranker.tolist() == [1, 0, 0, 1]
    found = targets_of(arrays, noise=0.05)
    assert found.reranker.tolist() == [1, 0, 1, 1]
    np.testing.assert_allclose(found.settings[2], [2, 0.1, 0.3], rtol=1e-6)


def test_quality_is_traded_for_tokens_and_time(tmp_path):
    tokens = {query: [64, 64, 32, 32] for query in TABLE}
    latency = {query: [10, 10, 10, 1010] for query in TABLE}
    arrays = arrays_of(tmp_path, TABLE, cost_tokens=tokens, latency_ms=latency)
    found = utility(arrays, TargetConfig(metric="rougeL", token_weight=0.5, latency_weight=0.1))
    np.testing.assert_allclose(found[1], [0.6 - 0.5 - 0.001, 0.6 - 0.501, 0.4 - 0.25 - 0.001, 0.2 - 0.25 - 0.101])
    # b needs half the tokens: worth more than the 0.2 that a is better.
    assert targets_of(arrays).reranker.tolist()[1:3] == [0, 0]
    assert targets_of(arrays, token_weight=0.5).reranker.tolist()[1:3] == [1, 1]


def test_a_metric_of_two_figures_is_their_mean(tmp_path):
    recall = {query: [0.0, 0.0, 1.0, 1.0] for query in TABLE}
    arrays = arrays_of(tmp_path, TABLE, evidence_recall=recall)
    np.testing.assert_allclose(
        utility(arrays, TargetConfig(metric="rougeL + evidence_recall"))[1], [0.3, 0.3, 0.7, 0.6], rtol=1e-6
    )


def test_what_a_reranker_is_worth(tmp_path):
    arrays = arrays_of(tmp_path, TABLE)
    np.testing.assert_allclose(targets_of(arrays, reranker_value="mean").quality[0], [0.5, 0.3], rtol=1e-6)


def test_the_best_single_configuration_by_hand(tmp_path):
    # Sums: a 1.0 with few and with many iterations, b 0.75, though best on q1.
    arrays = arrays_of(tmp_path, {"q1": [0.5, 0.25, 0.75, 0.0], "q2": [0.5, 0.75, 0.0, 0.0]})
    assert best_single(arrays, utility(arrays, PAPER)) == 0
    # Of equals the one that scored the fewest orders.
    turned = {query: [9, 1, 9, 9] for query in ("q1", "q2")}
    arrays = arrays_of(tmp_path, {"q1": [0.5, 0.25, 0.75, 0.0], "q2": [0.5, 0.75, 0.0, 0.0]}, orders_scored=turned)
    assert best_single(arrays, utility(arrays, PAPER)) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "f1+"}, "metric is 'f1\\+'"),
        ({"token_weight": -0.1}, "token_weight must be a finite number of at least 0, got -0.1"),
        ({"noise": float("nan")}, "noise must be a finite number"),
        ({"margin": float("inf")}, "margin must be a finite number"),
        ({"shrink": 1.1}, "shrink must be between 0 and 1, got 1.1"),
        ({"weighting": "loud"}, "weighting must be one of margin, rule, equal; got 'loud'"),
        ({"reranker_value": "worst"}, "reranker_value must be one of best, mean"),
    ],
)
def test_targets_that_cannot_be(settings, message):
    with pytest.raises(InputError, match=message):
        TargetConfig(**settings)


def test_labels_drawn_to_the_mean_of_their_folder_by_hand():
    values = np.array([[1.0, 0.0], [0.0, 0.0], [0.2, 0.6]])
    data = np.array(["x", "x", "y"])
    # Leads over a question's own mean: (0.5, -0.5), 0 and (-0.2, 0.2); their mean (0.1, -0.1) counts 20 times.
    found = shrunk(values, data, 1.0)
    of_x, of_y = (0.5 + 20 * 0.1) / 22, (-0.2 + 20 * 0.1) / 21
    np.testing.assert_allclose(found - found.mean(axis=1, keepdims=True), [[of_x, -of_x], [of_x, -of_x], [of_y, -of_y]])
    np.testing.assert_allclose(found.mean(axis=1), values.mean(axis=1), atol=1e-12)
    np.testing.assert_allclose(shrunk(values, data, 0.5), (values + found) / 2)
    assert shrunk(values, data, 0.0) is values


def test_drawing_labels_together_does_not_change_what_is_measured(tmp_path):
    arrays = arrays_of(tmp_path, TABLE)
    drawn = targets_of(arrays, shrink=1.0)
    np.testing.assert_allclose(drawn.utility, list(TABLE.values()), rtol=1e-6)
    # Nobody answers q4, but who answers the others is known.
    assert targets_of(arrays).weight.tolist()[3] == 0.0 < drawn.weight.tolist()[3]
    np.testing.assert_allclose(drawn.weight, 1.0, rtol=1e-5)
