"""Tokenizers out of the fields of GGUF files."""

from __future__ import annotations

import json
import unicodedata
from functools import cache
from unittest import mock

import pytest
import regex
from hypothesis import assume, given
from tiktoken_ext import openai_public
from tokenizers import Regex, pre_tokenizers

from corag.text.tokens.gguf import _RULES, tokenizer_of
from tests.corag.text.tokens.worlds import AWKWARD, CONTROL, PROSE, by_score, byte_level

NORMAL, UNKNOWN, CONTROLS, USER, BYTE = 1, 2, 3, 4, 6


def fields_of_byte_level(rule: str = "gpt-2", **changed) -> dict:
    """Return what a GGUF file would say of the byte-level tokenizer of the tests."""
    model = json.loads(byte_level()._tokenizer.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    fields = {
        "model": "gpt2",
        "pre": rule,
        "tokens": pieces,
        "token_type": [CONTROLS if piece == CONTROL else NORMAL for piece in pieces],
        "merges": [" ".join(pair) for pair in model["merges"]],
        "bos_token_id": 1,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in {**fields, **changed}.items()}


@given(AWKWARD)
def test_a_byte_level_tokenizer_is_the_one_that_was_written(text):
    made = tokenizer_of(fields_of_byte_level())
    assert made.encode(text, add_special_tokens=False).tokens == byte_level()._tokenizer.encode(text).tokens


def test_control_tokens_are_one_token_each():
    assert tokenizer_of(fields_of_byte_level()).encode(f"{CONTROL}{CONTROL}\n").tokens[:2] == [CONTROL, CONTROL]


@pytest.mark.parametrize(
    ("rule", "text", "pieces"),
    [
        ("gpt-2", "I'll see 1234 (x) \n\n y", ["I", "'ll", " see", " 1234", " (", "x", ")", " \n\n", " y"]),
        ("smollm", "see 12", ["see", " ", "1", "2"]),
        ("llama-bpe", "I'LL see 1234 it(x)\n\n y", ["I", "'LL", " see", " ", "123", "4", " it", "(x", ")\n\n", " y"]),
        ("qwen2", "see 1234", ["see", " ", "1", "2", "3", "4"]),
        ("gpt-4o", "camelCase's 1234 a/\n", ["camel", "Case's", " ", "123", "4", " a", "/\n"]),
        ("tekken", "camelCase's 12", ["camel", "Case", "'s", " ", "1", "2"]),
    ],
)
def test_texts_are_split_by_the_rule_that_the_file_names(rule, text, pieces):
    found = [(text, (0, 0))]
    for pattern in _RULES[rule]:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        found = [piece for part, _ in found for piece in split.pre_tokenize_str(part)]
    assert [piece for piece, _ in found] == pieces


@cache
def pattern_of(encoding: str) -> str:
    """Return the pattern of an encoding of tiktoken, without its vocabulary."""
    with mock.patch.object(openai_public, "load_tiktoken_bpe", lambda *_, **__: {}):
        return openai_public.ENCODING_CONSTRUCTORS[encoding]()["pat_str"].replace("$", r"\Z")


@pytest.mark.parametrize(
    ("rule", "encoding"), [("gpt-2", "r50k_base"), ("llama-bpe", "cl100k_base"), ("gpt-4o", "o200k_base")]
)
@given(text=AWKWARD)
def test_the_rules_split_as_tiktoken_does(rule, encoding, text):
    # Each library has the Unicode version of its year.
    assume(all(unicodedata.category(character) != "Cn" for character in text))
    split = pre_tokenizers.Split(Regex(_RULES[rule][0]), "isolated")
    pieces = [piece for piece, _ in split.pre_tokenize_str(text)]
    assert pieces == [found[0] for found in regex.finditer(pattern_of(encoding), text)]


def test_merges_by_score_are_those_of_sentencepiece():
    # "ab" scores above "bc", so "abc" is ab + c; "▁" stands for a space, and one is put before the text.
    pieces = ["<unk>", "\u2581", "a", "b", "c", "bc", "ab", "\u2581ab"]
    scores = [0.0, -10.0, -11.0, -12.0, -13.0, -3.0, -2.0, -4.0]
    fields = {"model": "llama", "tokens": pieces, "scores": scores, "token_type": [UNKNOWN] + [NORMAL] * 7}
    tokenizer = tokenizer_of({f"tokenizer.ggml.{key}": value for key, value in fields.items()})
    assert tokenizer.encode("abc abc").tokens == ["\u2581ab", "c", "\u2581ab", "c"]
    assert tokenizer.encode("bcx").tokens == ["\u2581", "bc", "<unk>"]
    without = {**fields, "add_space_prefix": False}
    tokenizer = tokenizer_of({f"tokenizer.ggml.{key}": value for key, value in without.items()})
    assert tokenizer.encode("abc").tokens == ["ab", "c"]


@given(AWKWARD)
def test_bytes_stand_in_for_what_a_vocabulary_by_score_lacks(text):
    model = json.loads(by_score()._tokenizer.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    kinds = [UNKNOWN if piece == "<unk>" else BYTE if piece.startswith("<0x") else NORMAL for piece in pieces]
    fields = {"model": "llama", "tokens": pieces, "scores": [0.0] * len(pieces), "token_type": kinds}
    made = tokenizer_of({f"tokenizer.ggml.{key}": value for key, value in fields.items()})
    assert len(made.encode(text)) == by_score().count([text])[0]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": None, "tokenizer.ggml.merges": None},
        fields_of_byte_level("a rule of next year"),
        fields_of_byte_level(merges=None),
        fields_of_byte_level(token_type=[1, 2]),
        fields_of_byte_level(model="bert"),
    ],
    ids=["nothing", "not verbose", "rule", "merges", "types", "kind"],
)
def test_an_unknown_kind_is_none(fields):
    assert tokenizer_of(fields) is None


def test_prose_has_the_tokens_of_its_tokenizer():
    made = tokenizer_of(fields_of_byte_level())
    assert [len(made.encode(text)) for text in PROSE] == byte_level().count(PROSE).tolist()
