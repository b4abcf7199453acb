"""Pairs from token ids against the tokenizer's own: equal, or known not to be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, processors

from corag.errors import InputError, ModelError
from corag.models.engine.pairs import PairTokenizer
from corag.text.documents import SEPARATOR
from tests.corag.models.worlds import byte_level, unigram, wordpiece

pytestmark = pytest.mark.slow

FRAGMENTS = st.text(max_size=12) | st.sampled_from(
    ["[SEP]", "[S", "EP]", "</s>", "<mask>", "<", "e", "\u0301", "漢", "\0", "\n", "\r", "\x85", "\u200d", "\u2028",
     " ", "\u3000", "  ", "▁", "##ing", "ing", "x" * 101, ".", "…", "river", " Berlin", "ﬁ", "각", "ᄀ", "ᅡ"]
)  # fmt: skip
TEXTS = st.lists(FRAGMENTS, max_size=5).map("".join)
JOINING = {"wordpiece": wordpiece, "unigram": unigram}
OTHERS = {
    "byte-level": byte_level,
    "metaspace alone": lambda: unigram(split_words=False),
    "metaspace at the start": lambda: unigram(prepend="first"),
}
ALL = {**JOINING, **OTHERS}


def own_pair(tokenizer, query, text, max_tokens):
    """What the tokenizers library makes of a pair."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens, strategy="only_second")
    encoding = tokenizer.encode(query, text)
    return encoding.ids, encoding.type_ids


@pytest.mark.parametrize("tokenizer", [PairTokenizer(make(), 512) for make in JOINING.values()], ids=JOINING)
@settings(max_examples=150)
@given(texts=st.lists(TEXTS, min_size=1, max_size=5))
def test_joined_ids_are_those_of_the_joined_text(tokenizer, texts):
    joined = tokenizer.tokenize([SEPARATOR.join(texts)])[0]
    assert np.concatenate(tokenizer.tokenize(texts)).tolist() == joined.tolist()


@pytest.mark.parametrize("name", ALL)
def test_which_tokenizers_join(name):
    assert PairTokenizer(ALL[name](), 512).joins(SEPARATOR) == (name in JOINING)


@pytest.mark.parametrize("name", OTHERS)
def test_the_others_do_differ_somewhere(name):
    tokenizer = PairTokenizer(OTHERS[name](), 512)
    parts = tokenizer.tokenize(["river ", "Berlin"])
    assert np.concatenate(parts).tolist() != tokenizer.tokenize(["river \n\nBerlin"])[0].tolist()


def with_normalizer(normalizer):
    tokenizer = unigram()
    tokenizer.normalizer = normalizer
    return tokenizer


def with_pre_tokenizer(pre_tokenizer):
    tokenizer = unigram()
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def with_token(token):
    tokenizer = unigram()
    tokenizer.add_tokens([token])
    return tokenizer


def test_what_is_not_known_to_join_does_not():
    assert not PairTokenizer(with_normalizer(normalizers.Replace(Regex(r"\s"), "")), 512).joins(SEPARATOR)
    assert not PairTokenizer(with_normalizer(normalizers.Prepend("▁")), 512).joins(SEPARATOR)
    assert not PairTokenizer(with_pre_tokenizer(pre_tokenizers.Punctuation()), 512).joins(SEPARATOR)
    assert not PairTokenizer(with_token("river Berlin"), 512).joins(SEPARATOR)
    assert PairTokenizer(with_token("river-Berlin"), 512).joins(SEPARATOR)
    assert not PairTokenizer(unigram(), 512).joins(" | ")


def test_without_splitting_nothing_joins():
    plain = wordpiece()
    parts = Tokenizer(plain.model)
    parts.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 101), ("[SEP]", 102)]
    )
    assert not PairTokenizer(parts, 512).joins(SEPARATOR)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=40)
@given(TEXTS, st.lists(TEXTS, max_size=3), st.integers(16, 40))
def test_pairs_are_the_tokenizers_own(name, query, texts, max_tokens):
    ours = PairTokenizer(ALL[name](), max_tokens)
    (query_ids,) = ours.tokenize([query])
    if len(query_ids) > max_tokens - 6:
        query = ""
    question = ours.question(query)
    ids, types = question.pairs(ours.tokenize(texts))
    theirs = ALL[name]()
    expected = [own_pair(theirs, query, text, max_tokens) for text in texts]
    assert [(row.tolist(), kinds.tolist()) for row, kinds in zip(ids, types, strict=True)] == expected


def test_a_pair_by_hand():
    question = PairTokenizer(wordpiece(), 7).question("Berlin")
    ids, types = question.pairs([np.array([11, 12, 13, 14]), np.array([], dtype=np.int64)])
    assert question.room == 3
    assert [row.tolist() for row in ids] == [[101, 4068, 102, 11, 12, 13, 102], [101, 4068, 102, 102]]
    assert [row.tolist() for row in types] == [[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1]]


def test_a_question_that_fills_the_window():
    tokenizer = PairTokenizer(wordpiece(), 10)
    assert tokenizer.question("river " * 6).room == 1
    with pytest.raises(InputError, match=r"the question has 7 tokens, .* window of 10 tokens; shorten the question"):
        tokenizer.question("river " * 7)


def test_a_tokenizer_that_makes_no_pairs():
    tokenizer = byte_level()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$B $A")
    with pytest.raises(ModelError, match="does not make pairs of a question and a text"):
        PairTokenizer(tokenizer, 10)
