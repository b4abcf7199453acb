"""Differences and decisions worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from corag.errors import InputError
from experiments.report.decision import POWER, Contest, bottleneck
from experiments.report.difference import RESAMPLES, Difference, paired_difference


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


def contest(mean, low, high, tokens=(54.0, 100.0), n=32):
    return Contest("corag", "top-k", Difference(mean, low, high, 0.5, n), tokens)


@pytest.mark.parametrize(
    ("interval", "tokens", "expected"),
    [
        ((0.1, 0.02, 0.2), (54, 100), "**Better answers** with 46% fewer tokens than top-k: use corag."),
        ((-0.1, -0.2, -0.02), (54, 100), "**Worse answers** with 46% fewer tokens than top-k: use top-k."),
        ((0.0, -0.04, 0.2), (54, 100), "**The same answers** with 46% fewer tokens than top-k: use corag."),
        ((0.0, -0.04, 0.2), (125, 100), "**The same answers** with 25% more tokens than top-k: use top-k."),
        ((0.0, -0.04, 0.2), (98, 100), "**The same answers** with as many tokens as top-k."),
        ((0.0, -0.04, 0.2), (3, 0), "**The same answers** with as many tokens as top-k."),
    ],
)
def test_a_decision(interval, tokens, expected):
    assert contest(*interval, tokens).decision() == [expected]


def test_too_few_questions_say_how_many_are_enough():
    # A standard error of .049 / 1.96 = .025 shows .07; for .05 there have to be (.07 / .05)^2 = 1.96 times as many.
    unclear = contest(-0.02, -0.069, 0.029)
    assert unclear.detectable == pytest.approx(POWER * 0.025)
    lines = unclear.decision()
    assert lines[0].startswith("**No clear difference**")
    assert lines[1] == "**32 questions are too few**: 63 would show a difference of 0.05 in F1."
    assert "-0.020, 95% interval -0.069 to +0.029, which includes 0" in unclear.statistics()
    # A few questions on which both do the same show nothing.
    assert contest(0.0, 0.0, 0.0, n=5).decision()[1].startswith("**5 questions are too few**: 30 would")
    # Enough of them, and still no answer.
    assert len(contest(-0.02, -0.051, 0.011).decision()) == 1


def rows(*stages):
    """Questions with F1, whether all evidence is selected, and whether it is among the candidates."""
    return [{"f1": f1, "full_evidence": float(full), **({"true_k": 3} if known else {})} for f1, full, known in stages]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (rows((0.1, 1, 1), (0.2, 1, 1), (0.9, 0, 1)), "**The reader is your bottleneck**: F1 0.15 with all evidence"),
        (rows((1.0, 1, 1), (0.0, 0, 1)), "**The selection is your bottleneck**: for 1 of 2 questions"),
        (rows((1.0, 1, 1), (0.0, 0, 0)), "**The retriever is your bottleneck**: for 1 of 2 questions"),
    ],
)
def test_what_limits_the_answers(given, expected):
    [line] = bottleneck(given, "f1", "F1")
    assert line.startswith(expected)
    assert bottleneck(rows((0.95, 1, 1)), "f1", "F1") == bottleneck(rows((0.0, 1, 1), (0.0, 0, 1)), "f1", "F1") == []


def test_a_larger_budget_is_advised_only_where_it_was_nearly_spent():
    given = [{**row, "cost_tokens": spent} for row, spent in zip(rows((1, 1, 1), (0, 0, 1)), (40, 56), strict=True)]
    [line] = bottleneck(given, "f1", "F1", budget=512)
    assert line.endswith("try a lower cost_weight or a higher keep: 48 of 512 tokens are spent.")
    [line] = bottleneck(given, "f1", "F1", budget=60)
    assert line.endswith("try a larger budget.")


@pytest.mark.parametrize("interval", [(0.1, 0.02, 0.2), (0.0, -0.04, 0.2), (0.0, -0.2, 0.2)])
def test_what_loses_a_part_of_the_evidence_is_not_advised(interval):
    [line] = replace(contest(*interval), what="evidence", title="kept", lost={"answer recall": -0.125}).decision()
    assert line.startswith("**Mixed evidence** with 46% fewer tokens than top-k: kept +0.")
    assert line.endswith("answer recall -0.125.") and "use corag" not in line
    assert "use top-k" in replace(contest(-0.1, -0.2, -0.02), lost={"answer recall": -0.125}).decision()[0]
