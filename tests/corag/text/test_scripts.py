"""Scripts without spaces between words, and what a model of English reads."""

import pytest

import corag
from corag.text.words import minilm_reads, minilm_share, spaced_characters

CAPITALS = [
    "罗马是意大利的首都。",
    "柏林是德国的首都, 人口三百万。",
    "The lake in Berlin is 20 metres deep.",
    "巴黎是法国的首都。",
]
QUESTION = "德国的首都是什么?"


@pytest.mark.parametrize(
    ("text", "spaced"),
    [
        ("Rome is old", "Rome is old"),
        ("柏林是", " 柏 林 是 "),
        ("in 柏, tall", "in  柏 , tall"),
        ("", ""),
    ],
)
def test_words_where_no_space_divides_them(text, spaced):
    assert spaced_characters(text) == spaced


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        (["How deep?"], True), ([], True), (["12 + 3"], True), (["Wie heißt die größte Stadt?"], True),
        ([QUESTION], False), (["Где находится озеро?"], False), (["ab", "湖 泊"], True), (["a", "湖 泊"], False),
    ],
)  # fmt: skip
def test_half_of_the_letters_are_latin(texts, read):
    assert minilm_reads(texts) == read


@pytest.mark.parametrize(
    ("texts", "share"),
    [
        ([], 1.0), (["12 + 3 is it"], 1.0), (["Where is the lake?"], 1.0),
        # Whole are three of six, and two of five; names do not count.
        (["lake deep long", "nacheinander ausgeführt verzögert"], 0.5),
        (["lake deep", "nacheinander ausgeführt verzögert"], 0.4), (["lake", "Qxqx Zyzy Xwvx"], 1.0),
        (["находится озеро"], 0.0),
    ],
)  # fmt: skip
def test_words_that_are_whole_in_minilms_vocabulary(texts, share):
    assert minilm_share(texts) == share


def test_what_minilm_does_not_read_is_chosen_by_words():
    selection = corag.select(QUESTION, CAPITALS, 20)
    assert selection.text == CAPITALS[1]
    # As many as fit where all is promised, and what the user gives is kept.
    assert len(corag.select(QUESTION, CAPITALS, 64, keep=1).ids) == 4
    assert corag.select(QUESTION, CAPITALS, 64, reranker="minilm-late").trace.reranker == "minilm-late"
