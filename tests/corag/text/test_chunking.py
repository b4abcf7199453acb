import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.text.chunking import ChunkConfig, chunk_document, sentence_spans
from corag.text.documents import Document, with_title
from corag.text.tokens import CallableCounter
from tests.corag.text.test_units import parts_of
from tests.fakes import CHARACTERS, WORDS

COUNTERS = {
    "minilm": corag.tokens(),
    "words": WORDS,
    # Joined text costs less, and more, than its parts.
    "merging": CallableCounter(lambda text: len(set(text)) + len(text) // 5, name="merging"),
    "sticky": CallableCounter(lambda text: len(text) + len(text.split()) ** 2 // 4, name="sticky"),
}

# Fragments that meet every branch: stops, quotes, CJK, RTL, emoji with joiners, controls, long words, gaps.
FRAGMENTS = st.sampled_from(
    ["One two. ", "Dr. No! ", "e.g. this", "\n\n", "\r\n\r\n", " ", "\t", "\0", "x" * 130, "漢字。", "かな", "שלום. ",
     "مرحبا؟ ", "👩‍👩‍👧", "e\u0301", "\u200b", "\ufeff", "3.14", "… ", "A. ", "”", "[SEP]", "."]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=80), st.lists(FRAGMENTS, min_size=10, max_size=30).map("".join))
TITLES = st.one_of(st.just(""), st.sampled_from(["A title", "漢字", "\0", " "]))


def bounds(chunks) -> list[tuple[int, int]]:
    return [(chunk.metadata["start"], chunk.metadata["end"]) for chunk in chunks]


@pytest.mark.parametrize("marked", parts_of("sentences.txt"))
def test_numbers_initials_marks_and_synopses_stay_whole(marked):
    text = marked.replace("¦", "")
    assert [text[start:end] for start, end in sentence_spans(text)] == marked.split("¦")


@pytest.mark.slow
@pytest.mark.parametrize("tokens", COUNTERS.values(), ids=COUNTERS)
@settings(max_examples=40, deadline=None)
@given(text=TEXTS, title=TITLES, max_tokens=st.integers(1, 40), overlap=st.integers(0, 39))
@example(text="aa bb cc dd " * 3, title="", max_tokens=5, overlap=3)
@example(text="aaa bbb \0 \0 ccc", title="", max_tokens=2, overlap=0)
def test_chunks_cover_the_document_and_keep_the_limit(tokens, text, title, max_tokens, overlap):
    document = Document("d#1", text, title)
    config = ChunkConfig(max_tokens, min(overlap, max_tokens - 1))
    try:
        chunks = chunk_document(document, tokens, config)
    except InputError:
        shortest = [with_title(title, text[at : at + 1]) for at in range(len(text))]
        title_tokens = tokens.count([with_title(title, "")])[0] if title else 0
        assert title_tokens >= max_tokens or tokens.count(shortest).max() > max_tokens
        return
    if not text:
        assert chunks == []
        return
    for chunk, (start, end) in zip(chunks, bounds(chunks), strict=True):
        assert chunk.id == f"d#1#{start}-{end}"
        assert chunk.text == with_title(title, text[start:end])
        assert chunk.metadata == {"document": "d#1", "title": title, "start": start, "end": end}
    assert tokens.count([chunk.text for chunk in chunks]).max() <= max_tokens
    starts, ends = zip(*bounds(chunks), strict=True)
    assert starts[0] == 0
    assert ends[-1] == len(text)
    for previous, (start, end) in pairwise(bounds(chunks)):
        assert previous[0] < start <= previous[1] < end
        if not config.overlap_tokens:
            assert start == previous[1]


CHUNKS = json.loads(Path(__file__).with_name("chunks.json").read_text(encoding="utf-8"))
"""Sentences and lists, how many words a chunk and an overlap may have, and where chunks begin and end.

One word is no whole sentence, so nothing is repeated; what leads into a list is in its chunk, and the list, if it fits.
"""


@pytest.mark.parametrize(("text", "max_tokens", "overlap", "expected"), CHUNKS)
def test_chunks_worked_out_by_hand(text, max_tokens, overlap, expected):
    chunks = chunk_document(Document("d", text), WORDS, ChunkConfig(max_tokens, overlap))
    assert [[*one] for one in bounds(chunks)] == expected


def test_long_words_are_cut_into_the_longest_parts_that_fit():
    chunks = chunk_document(Document("d", "ab " + "x" * 25 + " cd"), CHARACTERS, ChunkConfig(10))
    assert bounds(chunks) == [(0, 3), (3, 13), (13, 23), (23, 31)]


def test_what_leaves_no_room_is_refused():
    with pytest.raises(InputError, match="title"):
        chunk_document(Document("d", "text", "Title"), CHARACTERS, ChunkConfig(6))
    bytes_counter = CallableCounter(lambda text: list(text.encode()))
    with pytest.raises(InputError, match="🙂"):
        chunk_document(Document("d", "ab🙂"), bytes_counter, ChunkConfig(3))
