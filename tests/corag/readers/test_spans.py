"""From logits to spans, and from an answer to the part of the context that it came from."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.readers.context import answer_chunk, borders, sentences
from corag.readers.span_reader import NUM_OUTPUTS, ReaderSettings, SpanReading, best_span, chunk_windows, to_answer
from corag.text.documents import SEPARATOR

SETTINGS = ReaderSettings()


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
    logits = np.zeros((length + 3, NUM_OUTPUTS), dtype=np.float32)
    logits[:, 0], logits[:, 1] = data.draw(numbers), data.draw(numbers)
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
    answer = to_answer(SpanReading((10, 16), 0.0, kinds), "Germany\n\n Berlin.", SETTINGS)
    assert answer.text == text
    if text == "Berlin":
        assert (answer.spans, answer.chunk, answer.confidence) == (((10, 16),), 1, 0.5)
    else:
        assert (answer.spans, answer.chunk, answer.confidence) == ((), None, 0.4)


@pytest.mark.parametrize(
    ("said", "text"),
    [("876", "1,876"), ("1", "1,876"), ("365", "1,365.4"), ("sets", "sets"), ("of 22", "of 22"), ("7", "687")],
)
def test_an_answer_never_holds_half_of_a_number(said, text):
    context = "It lists 1,876 questions of 22 sets, 1,365.4 a day, 687."
    start = context.rindex(said) if said == "7" else context.index(said)
    answer = to_answer(SpanReading((start, start + len(said)), 0.0, (1.0, 0.0, 0.0, 0.0)), context, SETTINGS)
    assert (answer.text, [context[slice(*span)] for span in answer.spans]) == (text, [text])


CHUNKS = SEPARATOR.join(
    [
        "Bonn\nBonn was the capital of West Germany.",
        "Berlin\nBerlin lies on the Spree; the mayor of Berlin, Anna Weiss, took office in 1999.",
        "Anna Weiss\nWeiss, Anna: born in 1950 near Kiel.",
    ]
)


@pytest.mark.parametrize(
    ("answer", "chunk"),
    [
        ("Anna Weiss", 1),  # two chunks hold both words side by side: the earlier one
        ("weiss anna", 2),  # only the last holds them in this order
        ("1950", 2),
        ("The Spree.", 1),
        ("the capital", 0),
        ("in 1999, near Bremen", 1),  # half of the words; the third chunk holds two as well, but comes later
        ("a village near Bremen", None),
        ("yes", None),
        ("195", None),
        ("", None),
        (" ... ", None),
    ],
)
def test_the_chunk_of_an_answer(answer, chunk):
    assert answer_chunk(answer, CHUNKS) == chunk


@given(st.lists(st.text(st.characters(codec="utf-8", categories=["L", "N", "Z"]), min_size=1), min_size=1, max_size=4))
def test_a_whole_chunk_came_from_the_first_chunk_that_holds_its_words_in_a_row(texts):
    words = [re.findall(r"\w+", text.casefold()) for text in texts]
    for text, phrase in zip(texts, words, strict=True):
        holding = [
            place
            for place, there in enumerate(words)
            if any(there[start : start + len(phrase)] == phrase for start in range(len(there)))
        ]
        assert answer_chunk(text, SEPARATOR.join(texts)) == (holding[0] if phrase else None)


@given(st.text("aB. \n!?…\x00é🦔א", min_size=12, max_size=60))
def test_sentences_are_in_order_and_hold_no_outer_space(context):
    flat = [0, *(place for span in sentences(context) for place in span), len(context)]
    assert flat == sorted(flat)
    assert all(context[start:end].strip() == context[start:end] != "" for start, end in sentences(context))
