"""Sentences of contexts, and what answers quote of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.quotes import Quote, certainty, quotes
from corag.readers.sentences import closest_sentences, sentence_at, sentences, with_sentences
from corag.text.units import GAP, LINE_GAP
from corag.types import Answer

CONTEXT = f"Mill\nIt burned in\n1830. Otto built it.{GAP}Nobody knows why.\n\nLake\nThe lake is cold."


def texts(context):
    return [context[start:end] for start, end in sentences(context)]


def test_sentences_hold_neither_titles_nor_marks():
    assert texts(CONTEXT) == ["It burned in\n1830.", "Otto built it.", "Nobody knows why.", "The lake is cold."]
    assert texts("") == texts(" \n\n ") == texts(LINE_GAP) == []


@given(st.text("aB. \n!?…\x00é🦔א", max_size=60))
def test_sentences_are_in_order_and_hold_no_outer_space(context):
    flat = [0, *(place for span in sentences(context) for place in span), len(context)]
    assert flat == sorted(flat)
    assert all(text == text.strip() != "" for text in texts(context))
    for start, end in sentences(context):
        assert sentence_at(context, start) == sentence_at(context, end - 1) == (start, end)


@pytest.mark.parametrize("place", [0, CONTEXT.index("…"), CONTEXT.index("Lake\n"), len(CONTEXT), 10_000])
def test_titles_marks_and_what_is_outside_are_in_no_sentence(place):
    assert sentence_at(CONTEXT, place) is None


def test_an_answer_is_marked_in_its_sentence_on_one_line():
    at = CONTEXT.index("1830")
    answer = with_sentences(Answer("1830", 0.5, ((at, at + 4),)), CONTEXT, [sentence_at(CONTEXT, at)])
    assert answer.sentence == "It burned in 1830." and answer.found
    [quote] = quotes(answer, CONTEXT)
    assert quote == Quote("It burned in 1830.", (13, 17), 5)
    assert quote.pieces == ("It burned in ", "1830", ".")


def test_several_sentences_are_an_explanation_with_nothing_marked():
    spans = sentences(CONTEXT)
    answer = with_sentences(Answer("Otto", 0.5, (spans[1],)), CONTEXT, spans[1:3])
    assert answer.sentence == f"Otto built it.{GAP}Nobody knows why."
    assert [quote.marked for quote in quotes(answer, CONTEXT)] == [None, None]
    neighbours = with_sentences(answer, CONTEXT, spans[:2])
    assert neighbours.sentence == "It burned in 1830. Otto built it."
    assert with_sentences(answer, CONTEXT, []).sentence == ""


def test_an_answer_that_is_a_whole_sentence_is_not_marked():
    span = sentences(CONTEXT)[1]
    [quote] = quotes(with_sentences(Answer("Otto built it.", 0.5, (span,)), CONTEXT, [span]), CONTEXT)
    assert quote.marked is None and quote.pieces == ("", "", "Otto built it.")


def test_nothing_is_quoted_of_no_context_and_nothing_found_without_a_text():
    assert closest_sentences("why?", " \n\n", None, 2) is None
    assert quotes(Answer("yes"), CONTEXT) == []
    assert (Answer("yes").found, Answer("").found, Answer("", found=True).found) == (True, False, False)
    assert Answer("a", sentence="\ud83d").sentence == "\ufffd"


@pytest.mark.parametrize(
    ("confidence", "words"),
    [(None, None), (0.0, "a guess"), (0.25, "possibly"), (0.5, "likely"), (0.8, "very likely"), (1.0, "very likely")],
)
def test_confidence_in_words(confidence, words):
    assert certainty(confidence) == words
