"""Words as a ranking compares them, and what a model of English reads of scripts and languages."""

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.text.words import exact_words, minilm_share, words
from corag.types import Chunk

GIVEN = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
"""Forms of one word; codes that differ in a sign, with a question and a record to put them in; the words of composed
ones ("by" is in every text); and which share of the words of texts MiniLM has whole (names do not count)."""


@pytest.mark.parametrize("forms", GIVEN["one word"], ids=lambda forms: forms[0])
def test_forms_of_a_word_have_it_in_common(forms):
    assert set.intersection(*(set(words(f"({form})")) for form in forms))


@pytest.mark.parametrize(("text", "expected"), GIVEN["composed"].items())
def test_parts_of_composed_words_are_words(text, expected):
    assert words(text) == expected


def test_numbers_and_parts_with_a_digit_are_found_where_they_are():
    text = "Host 10.0.0.7 of 12 500, part AB-100은 v1.2"
    found = exact_words(text)
    assert [(word, text[start:end]) for word, start, end in found] == [
        ("10.0.0.7", "10.0.0.7"),
        ("12500", "12 500"),
        ("100", "100"),
        ("v1", "v1"),
        ("2", "2"),
    ]
    assert {word for word, _, _ in found} <= set(words(text))


@pytest.mark.parametrize(
    ("question", "record", "codes"), GIVEN["near"], ids=lambda value: value if isinstance(value, str) else ""
)
def test_of_records_whose_codes_differ_in_a_sign_the_right_one_is_first(question, record, codes):
    chunks = [Chunk(code, record.format(row + 20, code)) for row, code in enumerate(codes)]
    for row, code in enumerate(codes):
        values = corag.reranker("bm25").scorer(question.format(code), chunks)([(index,) for index in range(len(codes))])
        assert values.argmax() == row
        assert (values == values.max()).sum() == 1


@given(st.text(max_size=60))
def test_whatever_its_form_a_text_has_the_same_words(text):
    composed, apart = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert words(composed) == words(apart)
    assert all(words(text))


CAPITALS = [
    "罗马是意大利的首都。",
    "柏林是德国的首都, 人口三百万。",
    "The lake in Berlin is 20 metres deep.",
    "巴黎是法国的首都。",
]
QUESTION = "德国的首都是什么?"


@pytest.mark.parametrize(("texts", "share"), GIVEN["whole"])
def test_words_that_are_whole_in_minilms_vocabulary(texts, share):
    assert minilm_share(texts) == share


def test_what_minilm_does_not_read_is_chosen_by_words():
    selection = corag.select(QUESTION, CAPITALS, 20)
    assert selection.text == CAPITALS[1]
    # As many as fit where all is promised, and what the user gives is kept.
    assert len(corag.select(QUESTION, CAPITALS, 64, keep=1).ids) == 4
    assert corag.select(QUESTION, CAPITALS, 64, reranker="minilm-late").trace.reranker == "minilm-late"
