import numpy as np
import pytest
from scipy import stats

from experiments.agents.figures import by_folder, gap_interval, method_figures, paired_t_p, sign_flip_p
from experiments.agents.targets import TargetConfig
from tests.experiments.worlds import arrays_of

TARGET = TargetConfig(metric="rougeL", token_weight=0.64)
TABLE = {"q1": [0.5, 0.1, 0.4, 0.9], "q2": [0.3, 0.2, 0.7, 0.1]}
TOKENS = {"q1": [10, 20, 30, 40], "q2": [10, 20, 30, 40]}


def chosen(*choices):
    return [np.array(choice) for choice in choices]


def test_figures_worked_by_hand(tmp_path):
    arrays = arrays_of(tmp_path, TABLE, cost_tokens=TOKENS)
    # Utilities, with tokens at a hundredth each: q1 0.4 -0.1 0.1 0.5; q2 0.2 0.0 0.4 -0.3.
    choices = {
        "best-single": chosen([0, 0], [0, 0]),
        "mine": chosen([3, 0], [0, 2]),
        "oracle": chosen([3, 2], [3, 2]),
    }
    base, mine, oracle = method_figures(arrays, choices, TARGET)
    assert (base["utility"], base["quality"], base["cost_tokens"]) == pytest.approx((0.3, 0.4, 10))
    assert (base["regret"], base["gap_closed"], base["p_questions"]) == pytest.approx((0.15, 0, 1))
    # The first seed reaches (0.5, 0.2), the second (0.4, 0.4).
    assert (mine["utility"], mine["quality"], mine["cost_tokens"]) == pytest.approx(
        (0.375, (0.9 + 0.3 + 0.5 + 0.7) / 4, 22.5)
    )
    assert mine["utility_deviation"] == pytest.approx(0.05 / np.sqrt(2))
    assert (mine["regret"], mine["gap_closed"]) == pytest.approx((0.075, 0.5))
    assert (mine["seeds"], mine["seeds_above"]) == (2, 2)
    assert mine["p_seeds"] == pytest.approx(stats.ttest_rel([0.35, 0.4], [0.3, 0.3]).pvalue)
    # Leads 0.05 and 0.1: of the four ways to sign them two are as extreme.
    assert mine["p_questions"] == pytest.approx(0.5, abs=0.02)
    assert (oracle["regret"], oracle["gap_closed"], oracle["gap_closed_low"]) == pytest.approx((0, 1, 1))
    assert base["p_seeds"] is None
    found = by_folder(arrays, choices, TARGET)
    assert found == {"folder": pytest.approx({"best-single": 0.3, "mine": 0.375, "oracle": 0.45, "questions": 2})}


def test_groups_count_as_one():
    # Ten questions about one document say as much as one.
    lead, together, apart = np.full(10, 0.1), np.zeros(10, dtype=np.int64), np.arange(10)
    assert sign_flip_p(lead, together) == 1.0
    assert sign_flip_p(lead, apart) == pytest.approx(2 / 2**10, abs=1e-3)


@pytest.mark.slow
def test_the_interval_of_a_share():
    rng = np.random.default_rng(0)
    gap = rng.uniform(0.5, 1.5, size=400)
    low, high = gap_interval(0.3 * gap, gap, np.arange(400))
    assert low == pytest.approx(0.3) and high == pytest.approx(0.3)
    lead = rng.normal(0.3, 1.0, size=400)
    low, high = gap_interval(lead, gap, np.arange(400))
    share, deviation = lead.sum() / gap.sum(), np.std(lead - lead.sum() / gap.sum() * gap) / np.sqrt(400)
    assert (low, high) == pytest.approx((share - 1.96 * deviation, share + 1.96 * deviation), abs=0.02)
    assert gap_interval(lead, gap, np.arange(400)) == (low, high)
    assert gap_interval(np.zeros(3), np.zeros(3), np.arange(3)) == (0.0, 0.0)


def test_a_t_test_needs_a_spread():
    assert paired_t_p(np.array([0.1])) is None
    assert paired_t_p(np.array([0.1, 0.1])) is None
    assert paired_t_p(np.array([0.1, 0.2, 0.3])) == pytest.approx(stats.ttest_1samp([0.1, 0.2, 0.3], 0).pvalue)
