"""Adaptive-k against the paper's algorithm 1 and the public code, written out with loops."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.selectors.adaptive_k import (
    cutoffs,
    largest_gap_cutoff,
    moving_average_cutoff,
    second_difference_cutoff,
)
from corag.text.tokens import CallableCounter
from tests.corag.worlds import offer

# Few distinct values, so that equal gaps are common.
SIMILARITIES = st.lists(st.integers(-8, 8).map(lambda eighths: eighths / 8), max_size=14)
SHARES = st.sampled_from([0.0, 0.1, 0.3, 0.5])
BUFFERS = st.integers(0, 6)


def naive_gaps(ranked):
    return [ranked[i] - ranked[i + 1] for i in range(len(ranked) - 1)]


def first_largest(values, start, stop):
    best = None
    for i in range(start, stop):
        if best is None or values[i] > values[best]:
            best = i
    return best


def naive_largest_gap(similarities, head, tail, buffer, variant):
    ranked = sorted(similarities, reverse=True)
    n = len(ranked)
    start = int((n - 1) * head)
    stop = n - 1 - int(n * tail) if variant == "paper" else n - 1 - int((n - 1) * tail)
    last = first_largest(naive_gaps(ranked), start, stop) if n > 1 else None
    if last is None:
        return n
    return min(n, last + buffer if variant == "paper" else last + 1 + buffer)


@given(SIMILARITIES, SHARES, SHARES, BUFFERS, st.sampled_from(["code", "paper"]))
def test_largest_gap_as_in_algorithm_1(similarities, head, tail, buffer, variant):
    kept = largest_gap_cutoff(similarities, head=head, tail=tail, buffer=buffer, variant=variant)
    assert kept == naive_largest_gap(similarities, head, tail, buffer, variant)


def test_defaults_by_hand():
    # The largest gap is the third, 0.70 -> 0.40; three documents and five more are kept.
    similarities = [0.9, 0.8, 0.7, 0.4, 0.35, 0.3, 0.29, 0.28, 0.27, 0.26, 0.25]
    assert largest_gap_cutoff(similarities) == 8
    assert largest_gap_cutoff(similarities, buffer=0) == 3
    assert largest_gap_cutoff(similarities, buffer=0, variant="paper") == 2
    assert largest_gap_cutoff(similarities[::-1], buffer=0) == 3
    assert largest_gap_cutoff(similarities, buffer=100) == 11
    # Without the first three gaps, int(10 * 0.3), the largest is 0.40 -> 0.35 or 0.35 -> 0.30: the first of them.
    assert largest_gap_cutoff([0.9, 0.8, 0.7, 0.4, 0.3, 0.2, *[0.15] * 5], head=0.3, buffer=0) == 4


def test_the_tail_is_cut_from_the_gaps():
    # 11 documents, 10 gaps, of which int(10 * 0.1) = 1 is left out: the last, which is the largest.
    similarities = [1.0, *np.linspace(0.8, 0.7, 9), 0.0]
    assert largest_gap_cutoff(similarities, buffer=0) == 1
    assert largest_gap_cutoff(similarities, buffer=0, tail=0.0) == 10
    # With 10 documents int(9 * 0.1) = 0: the code then looks at every gap, the paper only at nine documents.
    assert largest_gap_cutoff(similarities[1:], buffer=0) == 9
    assert largest_gap_cutoff(similarities[1:], buffer=1, variant="paper") < 9


@pytest.mark.parametrize(
    ("similarities", "kept"), [([], 0), ([0.5], 1), ([0.5, 0.4], 2), ([0.3] * 4, 4), ([0.3] * 20, 6)]
)
def test_few_and_equal_similarities(similarities, kept):
    assert largest_gap_cutoff(similarities) == kept


@pytest.mark.parametrize("cutoff", [largest_gap_cutoff, moving_average_cutoff, second_difference_cutoff])
@pytest.mark.parametrize("number", range(9))
def test_cuts_that_leave_no_gap_keep_everything(cutoff, number):
    similarities = np.linspace(1, 0, number)
    assert cutoff(similarities, head=0.5, tail=0.5) <= number
    assert cutoff(similarities, head=1.0, tail=1.0) == number


@pytest.mark.parametrize("window", [1, 2, 3, 4])
def test_one_clear_drop_is_found_by_every_strategy(window):
    for relevant in range(window, 8):
        similarities = [0.9] * relevant + [0.1] * (14 - relevant)
        assert largest_gap_cutoff(similarities, buffer=0) == relevant
        assert moving_average_cutoff(similarities, buffer=0, window=window) == relevant
        if relevant > 1:
            # The first document after the drop is kept too, as in the public code.
            assert second_difference_cutoff(similarities, buffer=0) == relevant + 1


@given(SIMILARITIES, SHARES, SHARES, BUFFERS, st.integers(1, 5))
def test_moving_average_with_loops(similarities, head, tail, buffer, window):
    ranked = sorted(similarities, reverse=True)
    n = len(ranked)
    start, stop = int((n - 1) * head), n - 1 - int((n - 1) * tail)
    # In eighths, so that sums are exact.
    means = [sum(round(8 * s) for s in ranked[j : j + window]) for j in range(n - window + 1)]
    drops = naive_gaps(means)
    j = first_largest(drops, start, min(stop - window + 1, len(drops)))
    if n < 2 or j is None:
        expected = naive_largest_gap(similarities, head, tail, buffer, "code")
    else:
        expected = min(n, first_largest(naive_gaps(ranked), j, j + window) + 1 + buffer)
    assert moving_average_cutoff(similarities, head=head, tail=tail, buffer=buffer, window=window) == expected


@given(SIMILARITIES, SHARES, SHARES, BUFFERS)
def test_second_difference_with_loops(similarities, head, tail, buffer):
    ranked = sorted(similarities, reverse=True)
    n = len(ranked)
    start, stop = int((n - 1) * head), n - 1 - int((n - 1) * tail)
    part = ranked[start : stop + 1] if start < stop else []
    bends = [part[i + 2] - 2 * part[i + 1] + part[i] for i in range(len(part) - 2)]
    expected = naive_largest_gap(similarities, head, tail, buffer, "code")
    for i in range(1, len(bends)):
        if bends[i] > 0 and min(bends[:i]) < 0:
            expected = min(n, start + i + 1 + 1 + buffer)
            break
    assert second_difference_cutoff(similarities, head=head, tail=tail, buffer=buffer) == expected


@pytest.mark.parametrize("strategy", ["largest-gap", "moving-average", "second-difference"])
def test_a_batch_equals_one_by_one(strategy):
    rows = np.random.default_rng(0).random((300, 37))
    alone = [cutoffs(row[None], strategy=strategy)[0] for row in rows]
    assert cutoffs(rows, strategy=strategy).tolist() == alone
    assert cutoffs(rows[:0], strategy=strategy).tolist() == []
    assert cutoffs(rows[:2, :0], strategy=strategy).tolist() == [0, 0]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_similarities_must_be_finite(value):
    with pytest.raises(InputError, match=r"similarity (nan|inf) of query 0, document 1, is not a finite number"):
        largest_gap_cutoff([0.5, value, 0.1])
    rows = np.ones((200, 3))
    rows[150, 2] = value
    with pytest.raises(InputError, match="of query 150, document 2"):
        cutoffs(rows)


def test_shapes():
    with pytest.raises(InputError, match=r"shape \(1, 2\); give those of one query"):
        largest_gap_cutoff([[0.5, 0.2]])
    with pytest.raises(InputError, match=r"shape \(2,\); they must be \[queries, documents\]"):
        cutoffs([0.5, 0.2])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"head": -0.1}, "head must be from 0 to 1"),
        ({"tail": 1.1}, "tail must be from 0 to 1"),
        ({"tail": math.nan}, "tail must be from 0 to 1"),
        ({"buffer": -1}, "buffer must be a whole number of at least 0"),
        ({"buffer": 1.5}, "buffer .*must be a whole number"),
        ({"window": 0}, "window must be a whole number of at least 1"),
        ({"strategy": "elbow"}, "strategy is 'elbow'; it must be one of largest-gap"),
        ({"variant": "mine"}, "variant is 'mine'; it must be one of code, paper"),
    ],
)
def test_settings_out_of_range(setting, message):
    with pytest.raises(InputError, match=message):
        cutoffs([[0.5, 0.2]], **setting)
    with pytest.raises(InputError, match=message):
        corag.selector("adaptive-k", **setting)


def test_the_selector_keeps_what_fits_of_what_stands_before_the_gap():
    characters = CallableCounter(len, name="characters")
    pool = offer("aaaa", "bbbb", "cccc", "dddd", similarities=[0.1, 0.9, 0.2, 0.8])
    select = corag.selector("adaptive-k", buffer=0, tokens=characters).select
    selection = select("a?", pool, 100)
    assert (selection.ids, selection.trace.details["cutoff"]) == (("c1", "c3"), 2)
    assert selection.value == pytest.approx(0.85)
    assert select("a?", pool, 9).ids == ("c1",)
    # What stands before the gap is too long: the best that fits stands in.
    pool = offer("a" * 50, "bbbb", "cc", similarities=[0.9, 0.2, 0.1])
    assert select("a?", pool, 10).ids == ("c1",)
