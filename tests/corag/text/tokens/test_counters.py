import gzip
import json
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.ambient import checking
from corag.text.tokens import ENCODED_CHARACTERS, encode, estimated_tokens, load_tokenizer, model_folder
from tests.corag.text.tokens.worlds import AWKWARD, CONTROL, PROSE, counter
from tests.paths import DATA

MINILM_TOKENIZER = load_tokenizer(model_folder() / "tokenizer.json")


def test_minilm_counts_beyond_the_128_tokens_stored_in_its_file():
    assert json.loads((model_folder() / "tokenizer.json").read_text())["truncation"]["max_length"] == 128
    counter = corag.tokens()
    assert counter.name == "minilm"
    assert counter.count(["word " * 1000, "", "Berlin is the capital."]).tolist() == [1000, 0, 5]
    assert corag.tokens("minilm") is counter


@given(st.lists(st.text(max_size=60), max_size=5))
def test_minilm_counts_equal_its_tokenizer_text_by_text(texts):
    expected = [len(MINILM_TOKENIZER.encode(text, add_special_tokens=False).ids) for text in texts]
    assert corag.tokens().count(texts).tolist() == expected


@pytest.mark.parametrize(
    ("word", "tokens"),
    [
        ("a" * 100, None), ("a" * 101, 101), ("Zm9vYmFy" * 1250, 10_000), ("é" * 101, 202), ("🙂" * 33, 132),
        ("🙂" * 32, 1), ("🙂", 1), ("ក" * 40, 120),
    ],
)  # fmt: skip
def test_a_long_word_without_a_token_counts_by_its_bytes(word, tokens):
    counter = corag.tokens("minilm")
    own = len(MINILM_TOKENIZER.encode(word, add_special_tokens=False))
    expected = own if tokens is None else tokens
    assert counter.count([word, f"see {word} here", f"{word}\n\n{word}"]).tolist() == [
        expected, expected + 2, 2 * expected,
    ]  # fmt: skip


@given(st.lists(AWKWARD, min_size=1, max_size=4))
def test_no_count_with_long_words_is_below_the_tokenizer(texts):
    for one in (corag.tokens("minilm"), counter("unigram"), counter("words")):
        own = [len(one._tokenizer.encode(text, add_special_tokens=False)) for text in texts]
        assert (one.count(texts) >= own).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0), ("a", 2), ("the river", 3), ("The River", 3), ("é", 3), ("漢字", 3), ("🙂", 3), ("\ud83d", 3),
        ("1,234", 6), ("so 12", 5), ("a\n\nb", 4), (" ", 1), ("ab" * 17, 34), ("Regenschirm", 4),
        ("the Regenschirm", 5), ("река", 3),
    ],
)  # fmt: skip
def test_the_estimate_counts_words_digits_marks_and_scripts(text, expected):
    assert estimated_tokens(text) == expected


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no data folders at {DATA} (set CORAG_DATA)")
@pytest.mark.parametrize("name", ["hotpotqa", "tatqa", "pubmedqa"])
def test_the_estimate_errs_on_the_high_side(name):
    with gzip.open(DATA / name / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(150), strict=False)]
    exact, estimate = corag.tokens().count(texts), corag.tokens("estimate").count(texts)
    assert np.mean(estimate >= 0.9 * exact) >= 0.98
    assert exact.sum() < estimate.sum() < 1.4 * exact.sum()


ODD = [*PROSE, CONTROL, "12345", " ", "\n\n", "水水", "“", "é", "a" * 300, "7" * 500, "1,200.5"]


@pytest.mark.parametrize("name", ["minilm", "byte-level", "unigram", "words", "by-score"])
@pytest.mark.parametrize("pieces", [ODD, ["水"], ["7"], ["“"], ["the "]])
def test_a_long_text_has_the_tokens_that_it_has_as_a_whole(name, pieces):
    tokenizer = (corag.tokens() if name == "minilm" else counter(name))._tokenizer
    random = Random(0)
    text = ""
    while len(text) < 3 * ENCODED_CHARACTERS:
        text += "".join(random.choices(pieces, k=100))
    whole = tokenizer.encode(text, add_special_tokens=False)
    for offsets in (False, True):
        first, found, last = encode(tokenizer, ["the", text, "the"], offsets=offsets)
        assert found.ids == whole.ids and first.ids == last.ids
        assert not offsets or found.offsets == whole.offsets


def test_a_long_text_can_be_stopped():
    looks = 0

    def look():
        nonlocal looks
        looks += 1
        if looks == 3:
            raise TimeoutError

    with checking(look), pytest.raises(TimeoutError):
        corag.tokens().count(["word " * 100_000])
