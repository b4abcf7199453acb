import gzip
import json
from collections import UserDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from corag.errors import InputError, ModelError
from corag.text.tokens import (
    CallableCounter,
    TokenizerFileCounter,
    estimated_tokens,
    load_tokenizer,
    model_folder,
    token_counter,
)
from corag.types import TokenCounter
from tests.paths import DATA

MINILM_TOKENIZER = load_tokenizer(model_folder() / "tokenizer.json")


@pytest.fixture
def word_file(tmp_path) -> Path:
    """A tokenizer of white-space words whose file asks for special tokens, truncation to 3 and padding to 8."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[PAD]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=8, pad_token="[PAD]", pad_id=2)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


# --- Tokenizer files ---


@pytest.mark.parametrize("given_as", ["file", "text", "folder"])
def test_a_tokenizer_file_is_counted_whole_and_bare(word_file, given_as):
    spec = {"file": word_file, "text": str(word_file), "folder": word_file.parent}[given_as]
    counter = token_counter(spec)
    counts = counter.count(["", "a", "a b c d e f g h i j"])
    assert counts.tolist() == [0, 1, 10]
    assert counts.dtype == np.int64
    assert (counter.name, counter.exact) == (str(spec), True)
    assert isinstance(counter, TokenCounter)


def test_relative_paths_follow_the_working_directory(word_file, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")).save(str(other / "tokenizer.json"))
    monkeypatch.chdir(word_file.parent)
    assert token_counter("tokenizer.json").count(["a b c"]).tolist() == [3]
    monkeypatch.chdir(other)
    assert token_counter("tokenizer.json").count(["a b c"]).tolist() == [1]


def test_minilm_counts_beyond_the_128_tokens_stored_in_its_file():
    assert json.loads((model_folder() / "tokenizer.json").read_text())["truncation"]["max_length"] == 128
    counter = token_counter()
    assert counter.name == "minilm"
    assert counter.count(["word " * 1000, "", "Berlin is the capital."]).tolist() == [1000, 0, 5]
    assert token_counter("minilm") is counter


@given(st.lists(st.text(max_size=60), max_size=5))
def test_minilm_counts_equal_its_tokenizer_text_by_text(texts):
    expected = [len(MINILM_TOKENIZER.encode(text, add_special_tokens=False).ids) for text in texts]
    assert token_counter().count(texts).tolist() == expected


@pytest.mark.parametrize("text", ["broken \ud83d pair", None, 7])
def test_what_is_no_unicode_text_is_refused(text):
    with pytest.raises(InputError, match="valid Unicode"):
        token_counter().count(["fine", text])


@pytest.mark.parametrize("content", ["", "{", "{}", '{"model": {"type": "WordLevel"}}', "\0"])
def test_a_broken_file_is_a_model_error(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ModelError, match="is not a readable tokenizers file"):
        token_counter(path)


def test_a_missing_file_is_a_model_error(tmp_path):
    with pytest.raises(ModelError, match=r"nothing\.json is not a readable"):
        TokenizerFileCounter(tmp_path / "nothing.json")


@pytest.mark.parametrize("spec", ["gpt-5", "", "no/such/tokenizer.json", Path("nothing"), None, 5])
def test_an_unknown_spec_says_what_can_be_given(spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"neither 'minilm', 'estimate', a function nor .*tokenizer\.json"):
        token_counter(spec)


# --- Callables ---


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (3, 3),
        (0, 0),
        (np.int64(4), 4),
        (np.uint8(5), 5),
        ([], 0),
        (["a", "b"], 2),
        ((1, 2, 3), 3),
        (np.array([7, 8]), 2),
        (range(6), 6),
    ],
    ids=repr,
)
def test_callables_return_numbers_or_tokens(result, expected):
    counts = token_counter(lambda _: result).count(["some text", "more"])
    assert counts.tolist() == [expected, expected]
    assert counts.dtype == np.int64


@pytest.mark.parametrize(
    "result",
    [
        True, np.True_, -1, np.int64(-2), 2.0, np.float64(2.0), float("nan"), None, "some text", b"text",
        {"input_ids": [1, 2]}, UserDict({"input_ids": [1], "attention_mask": [1]}),
        np.array(3), np.array([[1, 2, 3]]), iter([1]),
    ],
    ids=lambda result: type(result).__name__,
)  # fmt: skip
def test_callables_that_return_something_else_are_refused(result):
    counter = CallableCounter(lambda _: result, name="mine")
    with pytest.raises(InputError, match=r"'mine' returned .* for a text of 9 characters; it must return a whole"):
        counter.count(["some text"])


def test_callables_carry_their_name_and_count_the_encodings_of_a_tokenizer(word_file):
    tokenizer = load_tokenizer(word_file)

    def encode_bare(text: str) -> object:
        return tokenizer.encode(text, add_special_tokens=False)

    counter = token_counter(encode_bare)
    assert (counter.name, counter.exact) == ("encode_bare", True)
    assert counter.count(["a b c d e", ""]).tolist() == [5, 0]
    assert counter.count([]).shape == (0,)


# --- The estimate ---


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("a", 1), ("abc", 1), ("abcd", 2), ("é", 1), ("漢字", 2), ("🙂", 2), ("\ud83d", 1)]
)
def test_the_estimate_is_a_third_of_the_bytes_rounded_up(text, expected):
    assert estimated_tokens(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("1,234", 4), ("$ 5.2 %", 5), ("(12)", 4), ("a_b", 3), ("_", 1)])
def test_the_estimate_of_dense_marks_and_digits_counts_them(text, expected):
    assert estimated_tokens(text) == expected


def test_the_estimate_is_flagged():
    counter = token_counter("estimate")
    assert (counter.name, counter.exact) == ("estimate", False)
    assert counter.count(["abcd", ""]).tolist() == [2, 0]


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no data folders at {DATA} (set CORAG_DATA)")
@pytest.mark.parametrize("folder", sorted(DATA.iterdir()) if DATA.is_dir() else [], ids=lambda path: path.name)
def test_the_estimate_errs_on_the_expensive_side(folder):
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(150), strict=False)]
    exact, estimate = token_counter().count(texts), token_counter("estimate").count(texts)
    assert np.mean(estimate >= exact) >= 0.97
