"""From logits to spans: worked out by hand, and against every span tried in turn."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.readers.context import borders
from corag.readers.span_reader import (
    NUM_OUTPUTS,
    ReaderSettings,
    Reading,
    best_span,
    chunk_windows,
    to_answer,
)

SETTINGS = ReaderSettings()


def logits_of(starts, ends):
    logits = np.zeros((len(starts), NUM_OUTPUTS), dtype=np.float32)
    logits[:, 0], logits[:, 1] = starts, ends
    return logits


def test_borders_are_where_titles_texts_and_chunks_begin():
    context = "Erfurt\nErfurt is old.\nIt is a city.\n\nNo title here, is there?\nNone.\n\nJena\nIt lies on the Saale."
    begins = [context[border:].split()[0] for border in borders(context)]
    assert begins == ["Erfurt", "No", "Jena", "It"]
    assert borders("") == []


@given(st.data())
def test_agrees_with_trying_every_span(data):
    length = data.draw(st.integers(1, 8))
    longest = data.draw(st.integers(1, 10))
    numbers = st.lists(st.integers(-3, 3), min_size=length + 3, max_size=length + 3)
    logits = logits_of(data.draw(numbers), data.draw(numbers))
    parts = np.sort(data.draw(st.lists(st.integers(0, 2), min_size=length, max_size=length)))
    found = best_span(logits, 2, length + 1, longest, parts)
    spans = [
        (i, j)
        for i in range(2, length + 2)
        for j in range(i, min(i + longest, length + 2))
        if parts[i - 2] == parts[j - 2]
    ]
    best = max(spans, key=lambda span: (logits[span[0], 0] + logits[span[1], 1], -span[0], -span[1]))
    assert found[:2] == best


@given(st.lists(st.integers(1, 120), max_size=12), st.integers(1, 100))
def test_windows_cover_a_context_and_divide_only_chunks_that_are_longer(lengths, size):
    starts = np.cumsum([0, *lengths]).tolist()
    spans = chunk_windows(starts[-1], size, starts)
    assert all(0 < end - start <= size for start, end in spans)
    assert {token for start, end in spans for token in range(start, end)} == set(range(starts[-1]))
    for first, last in itertools.pairwise(starts):
        if last - first <= size:
            assert any(start <= first and last <= end for start, end in spans)
    if max(lengths, default=0) <= size:
        assert sum(end - start for start, end in spans) == starts[-1]


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        ((0.6, 0.1, 0.2, 0.1), "Berlin"),
        ((0.3, 0.1, 0.4, 0.2), "yes"),
        ((0.3, 0.1, 0.2, 0.4), "no"),
        ((0.0, 1.0, 0.0, 0.0), "Berlin"),
    ],
)
def test_yes_and_no_win_when_they_are_likelier_than_a_span(kinds, text):
    answer = to_answer(Reading((10, 16), 0.0, kinds), "Germany\n\n Berlin.", SETTINGS)
    assert answer.text == text
    if text == "Berlin":
        assert (answer.spans, answer.chunk, answer.confidence) == (((10, 16),), 1, 0.5)
    else:
        assert (answer.spans, answer.chunk, answer.confidence) == ((), None, 0.4)
