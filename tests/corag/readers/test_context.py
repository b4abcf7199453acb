"""What a context consists of, and which part of it an answer came from."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.readers.context import answer_chunk, sentences
from corag.text.documents import SEPARATOR
from corag.text.units import GAP

# --- The chunk of an answer ---

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


# --- Sentences ---

CONTEXT = f"Mill\nIt burned in\n1830. Otto built it.{GAP}Nobody knows why.\n\nLake\nThe lake is cold."


def texts(context):
    return [context[start:end] for start, end in sentences(context)]


@given(st.text("aB. \n!?…\x00é🦔א", max_size=60))
def test_sentences_are_in_order_and_hold_no_outer_space(context):
    flat = [0, *(place for span in sentences(context) for place in span), len(context)]
    assert flat == sorted(flat)
    assert all(text == text.strip() != "" for text in texts(context))
