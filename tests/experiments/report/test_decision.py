"""Decisions worked out by hand."""

import pytest

from experiments.report.decision import POWER, Contest, bottleneck
from experiments.report.difference import Difference


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
