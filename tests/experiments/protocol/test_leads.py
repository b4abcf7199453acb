import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.errors import InputError
from experiments.protocol.leads import POWER, Quality, lead, standard_error, visible_lead


def test_quality_weighs_answer_and_evidence_and_takes_one_alone_where_the_other_is_missing():
    quality = Quality("f1", 0.25)
    assert quality.of({"f1": 0.4, "evidence_recall": 0.8, "rougeL": 0.9}) == pytest.approx(0.75 * 0.4 + 0.25 * 0.8)
    assert quality.of({"evidence_recall": 0.8}) == pytest.approx(0.8)
    assert quality.of({"f1": 0.4}) == pytest.approx(0.4)
    assert Quality("rougeL", 0.0).of({"rougeL": 0.3, "f1": 0.9}) == pytest.approx(0.3)
    assert quality.of({"cost_tokens": 100.0}) is None
    assert quality.of({"failed": 1.0}) == 0.0


@pytest.mark.parametrize(("settings_", "message"), [(("em", 0.5), "must be f1 or rougeL"), (("f1", 1.5), "got 1.5")])
def test_a_quality_that_is_none_is_refused(settings_, message):
    with pytest.raises(InputError, match=message):
        Quality(*settings_)


def test_one_group_of_equal_questions_counts_once():
    values = np.array([0.4, 0.4, 0.4, -0.2, -0.2, -0.2])
    alone = standard_error(values, list("abcdef"))
    together = standard_error(values, list("aaabbb"))
    assert alone == pytest.approx(np.std(values, ddof=1) / np.sqrt(6))
    # Two groups of sums +-0.9: sqrt(2 * (0.9² + 0.9²)) / 6.
    assert together == pytest.approx(np.sqrt(2 * 2 * 0.81) / 6)


def test_a_steady_lead_is_found_and_none_is_not():
    random = np.random.default_rng(0)
    names = [str(n) for n in range(200)]
    found = lead(0.05 + 0.1 * random.standard_normal(200), names)
    assert found.low > 0
    assert found.p < 0.01
    assert found.low < found.mean < found.high
    nothing = lead(0.1 * random.standard_normal(200), names)
    assert nothing.low < 0 < nothing.high
    assert nothing.p > 0.05
    assert (found.questions, found.groups) == (200, 200)


def test_the_lead_that_could_be_seen_shrinks_with_the_root_of_the_questions():
    values = np.random.default_rng(1).standard_normal(100)
    names = [str(n) for n in range(100)]
    assert visible_lead(values, names, 400) == pytest.approx(POWER * standard_error(values, names) / 2)
    assert lead(values, names).visible == pytest.approx(visible_lead(values, names, 100))


@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 3)), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_a_lead_is_a_mean_with_an_interval_whatever_the_groups(pairs):
    found = lead(np.array([value for value, _ in pairs]), [str(group) for _, group in pairs])
    assert found.mean == pytest.approx(np.mean([value for value, _ in pairs]))
    assert found.low - 1e-9 <= found.high
    assert 0 < found.p <= 1
    assert found.visible >= 0


def test_no_difference_is_refused():
    with pytest.raises(InputError, match="no question has figures of both"):
        lead(np.zeros(0), [])
