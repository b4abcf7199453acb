"""Differences worked out by hand."""

import numpy as np
import pytest

from corag.errors import InputError
from experiments.report.difference import RESAMPLES, paired_difference


def test_pairs_that_all_differ_alike_are_certain():
    found = paired_difference([0.75] * 8, [0.5] * 8)
    assert (found.mean, found.low, found.high, found.p, found.n) == (0.25, 0.25, 0.25, 1 / RESAMPLES, 8)
    assert found.is_certain and str(found) == "+0.250 (+0.250 to +0.250)"


def test_the_interval_of_a_coin():
    found = paired_difference([0.0, 1.0] * 50)
    assert 0.38 < found.low < 0.45 < found.mean == 0.5 < 0.55 < found.high < 0.62
    even = paired_difference([0.0, 1.0] * 50, [1.0, 0.0] * 50)
    assert not even.is_certain and even.p > 0.8


def test_questions_that_share_a_document_count_as_one():
    rng = np.random.default_rng(0)
    by_group = rng.normal(0.1, 1, 20).repeat(30)
    groups = [f"{index // 30:02}" for index in range(600)]
    alone, grouped = paired_difference(by_group), paired_difference(by_group, groups=groups)
    assert grouped.mean == alone.mean
    # Thirty copies of each tell no more than one.
    assert (grouped.high - grouped.low) / (alone.high - alone.low) == pytest.approx(30**0.5, rel=0.15)
    once = paired_difference(by_group[::30])
    assert (grouped.low, grouped.high) == pytest.approx((once.low, once.high))


@pytest.mark.parametrize("pair", [([], []), ([1.0], [1.0, 2.0])])
def test_questions_without_a_partner_are_refused(pair):
    with pytest.raises(InputError):
        paired_difference(*pair)
