"""Chunks that keep to a document's structure."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag.files.chunks import chunk_file
from corag.files.markdown import read_markdown
from corag.text.chunking import ChunkConfig
from corag.text.documents import body, citation
from corag.text.units import assemble, is_fence, units
from corag.types import Chunk
from tests.fakes import CHARACTERS, WORDS


def chunks_of(text, max_tokens=24, overlap=0, tokens=WORDS, name="a.md"):
    file = read_markdown(text, "a", lines=True)
    chunks, text = chunk_file(name, file, tokens, ChunkConfig(max_tokens, overlap)), file.text
    for chunk in chunks:
        start, end = chunk.metadata["start"], chunk.metadata["end"]
        assert chunk.id == f"{name}#{start}-{end}"
        assert f"\n{chunk.text}".endswith("\n" + text[start:end])
        assert int(tokens.count([chunk.text])[0]) <= max_tokens
        assert chunk.metadata["line"] == len(re.findall(r"\r\n?|\n", text[:start])) + 1
    return chunks


def test_citations_of_chunks_of_no_file():
    assert citation(Chunk("a", "text")) == "a"
    assert citation(Chunk("a", "text", {"document": None, "page": None, "title": None})) == "a"
    assert citation(Chunk("4f1c", "text", {"source": "a.pdf", "page": 3})) == "a.pdf, page 3"  # a document of LangChain
    titled = Chunk("a#0-4", "T\ntext", {"document": "a", "title": "T", "start": 0, "end": 4})
    assert citation(titled) == "a: T"


PIECES = st.sampled_from(
    [
        "# One\n\n", "## Two\n\n", "### Three\n\n", "Some words here. ", "And more of them!\n\n", "- item\n",
        "- other one\n", "```\ncode a\n\ncode b\n```\n\n", "\r\n", "漢字。", "x" * 30 + " ", "\n\n", "> quote\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |\n\n", "    indented\n", "<!-- no -->\n", "é\u0301😀 ",
    ]
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    st.lists(PIECES, min_size=8, max_size=25).map("".join),
    st.sampled_from([12, 20, 48]),
    st.sampled_from([0, 5]),
    st.sampled_from([WORDS, corag.tokens(), CHARACTERS]),
)
def test_every_word_below_a_heading_is_in_a_chunk(text, max_tokens, overlap, tokens):
    chunks = chunks_of(text, max_tokens, overlap, tokens)
    assert len({chunk.id for chunk in chunks}) == len(chunks)
    starts = [chunk.metadata["start"] for chunk in chunks]
    assert starts == sorted(starts)
    covered = set()
    for chunk in chunks:
        covered.update(range(chunk.metadata["start"], chunk.metadata["end"]))
    file = read_markdown(text, "a")
    text = file.text
    for section in file.sections:
        for block in section.blocks:
            covered.update(range(block.start, block.header_end))  # of a table; its names are above its rows
        for block in section.blocks[:1]:
            missed = "".join(text[at] for at in range(block.start, section.end) if at not in covered)
            assert not missed.replace("```", "").strip()  # marks that do not fit beside their code


def test_a_list_longer_than_a_chunk_repeats_what_leads_into_it():
    items = [f"- {name} is the name of one of them" for name in "abcdef"]
    text = "\n".join(["It is old. Of its valves these count:", "", *items, "", "Then wait."])
    first, *others, last = chunks_of(text, 32)
    assert body(first) == "It is old." and body(last) == "Then wait."
    assert [body(one).splitlines()[0] for one in others] == ["Of its valves these count:"] * len(others)
    listed = [line for one in others for line in body(one).splitlines() if line.startswith("-")]
    assert listed == items and len(others) > 1
    # Items of two chunks below the lead that both have; it is shown once.
    chosen = [units(others[0], 1, 10)[0], units(others[-1], 1, 10)[-1]]
    assert assemble(chosen)[0] == f"a\nOf its valves these count:\n\n{items[0]}\n\u2026\n{items[-1]}"
    # What is longer than a quarter of a chunk is not repeated.
    assert sum("these count:" in one.text for one in chunks_of(text, 18)) == 1


def test_the_marks_around_code_are_in_the_chunks_of_the_code():
    code = "\n".join(f"x = {number}  # a comment" for number in range(12))
    for size in range(6, 40):
        chunks = chunks_of(f"Aa to. Ee us:\n\n```py\n{code}\n```\n", size)
        assert not any(is_fence(body(one)) for one in chunks)
