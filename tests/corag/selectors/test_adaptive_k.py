"""Adaptive-k against the paper's algorithm 1 and the public code, written out with loops."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.selectors.adaptive_k import largest_gap_cutoff
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


@pytest.mark.parametrize("similarities", [[0.5, math.nan, 0.1], [math.inf], [[0.5, 0.1]]])
def test_bad_similarities(similarities):
    with pytest.raises(InputError):
        largest_gap_cutoff(similarities)


@pytest.mark.parametrize("setting", [{"head": -0.1}, {"tail": 1.1}, {"buffer": -1}, {"variant": "own"}])
def test_bad_settings(setting):
    with pytest.raises(InputError, match=next(iter(setting))):
        largest_gap_cutoff([0.5, 0.1], **setting)
    with pytest.raises(InputError, match=next(iter(setting))):
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
