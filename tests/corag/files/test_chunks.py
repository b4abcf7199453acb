"""Chunks that keep to a document's structure."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag.files import read_file
from corag.files.chunks import chunk_file, fitting_title
from corag.files.markdown import read_markdown
from corag.text.chunking import ChunkConfig
from corag.text.documents import body, citation
from corag.text.units import assemble, is_fence, units
from corag.types import Chunk
from tests.corag.files.worlds import pdf
from tests.fakes import CHARACTERS, WORDS


def chunks_of(text, max_tokens=24, overlap=0, tokens=WORDS, name="a.md"):
    file = read_markdown(text, "a")
    chunks = chunk_file(name, file, tokens, ChunkConfig(max_tokens, overlap))
    for chunk in chunks:
        start, end = chunk.metadata["start"], chunk.metadata["end"]
        assert chunk.id == f"{name}#{start}-{end}"
        assert f"\n{chunk.text}".endswith("\n" + text[start:end])
        assert int(tokens.count([chunk.text])[0]) <= max_tokens
        assert chunk.metadata["line"] == len(re.findall(r"\r\n?|\n", text[:start])) + 1
    return chunks


def sentences(*names):
    """A sentence of eight words for each name."""
    return "\n".join(f"{name} one two three four five six end." for name in names)


def test_no_chunk_crosses_a_heading():
    text = f"# Guide\n\n{sentences('A')}\n\n## Use\n\n{sentences('B', 'C', 'D')}\n\n## End\n\n{sentences('E')}\n"
    chunks = chunks_of(text)
    assert [(chunk.metadata["title"], body(chunk)) for chunk in chunks] == [
        ("Guide", sentences("A")),
        ("Guide > Use", sentences("B", "C")),
        ("Guide > Use", sentences("D")),
        ("Guide > End", sentences("E")),
    ]
    assert [citation(chunk) for chunk in chunks[::3]] == ["a.md, line 3: Guide", "a.md, line 13: Guide > End"]


def test_short_sections_are_joined_under_the_heading_they_share():
    text = (
        "# API\n\n## open\n\nOpens it.\n\n## close\n\nCloses it.\n\n### now\n\nAt once.\n\n"
        f"## read\n\n{sentences('A')}\n\n## write\n\nWrites.\n"
    )
    # Shorter than an eighth of 48 is short.
    chunks = chunks_of(text, 48)
    assert [(chunk.metadata["headings"], body(chunk)) for chunk in chunks] == [
        (["API"], "## open\n\nOpens it.\n\n## close\n\nCloses it.\n\n### now\n\nAt once."),
        (["API", "read"], sentences("A")),
        (["API", "write"], "Writes."),
    ]


def test_code_stays_whole_where_it_fits():
    code = "```\nx = 1\n\ny = 2\n```"
    text = f"{sentences('A', 'B')}\n\n{code}\n\n{sentences('C')}"
    assert [body(chunk) for chunk in chunks_of(text, 20)] == [sentences("A", "B"), f"{code}\n\n{sentences('C')}"]


def test_long_code_is_cut_at_empty_lines_then_at_lines():
    functions = [f"def f{number}():\n    return 1" for number in range(4)]
    text = "```\n" + "\n\n".join(functions) + "\n```"
    assert [body(chunk) for chunk in chunks_of(text, 10)] == [
        "```\n" + "\n\n".join(functions[:2]), "\n\n".join(functions[2:]) + "\n```",
    ]  # fmt: skip
    assert [body(chunk) for chunk in chunks_of("    a b c\n      d e f\n", 4)] == ["    a b c", "      d e f"]


def test_each_part_of_a_long_table_has_the_header():
    header = "| name | price |\n|---|---|\n"
    rows = [f"| part {number} | {number} |\n" for number in range(7)]
    text = f"# T\n\nBefore.\n\n{header}{''.join(rows)}\nAfter.\n"
    chunks = chunks_of(text, 22)
    assert [chunk.text for chunk in chunks] == [
        "T\nBefore.",
        f"T\n{header}{rows[0]}{rows[1]}".rstrip(),
        f"T\n{header}{rows[2]}{rows[3]}".rstrip(),
        f"T\n{header}{rows[4]}{rows[5]}".rstrip(),
        f"T\n{header}{rows[6]}".rstrip(),
        "T\nAfter.",
    ]
    # The first rows stand below their header in the file, too.
    assert text[slice(*spans(chunks[1]))] == f"{header}{rows[0]}{rows[1]}".rstrip()
    assert text[slice(*spans(chunks[2]))] == f"{rows[2]}{rows[3]}".rstrip()


def spans(chunk):
    return chunk.metadata["start"], chunk.metadata["end"]


@pytest.mark.parametrize(
    ("headings", "limit", "title"),
    [
        (["A", "B"], 3, "A > B"),
        (["A", "B", "C"], 5, "A > B > C"),
        (["A", "B b", "C"], 5, "A > … > C"),
        (["A a a a a", "B", "C"], 5, "C"),
        (["A", "one two three"], 2, "one two"),
    ],
)
def test_a_long_title_loses_its_middle_first(headings, limit, title):
    assert fitting_title(headings, WORDS, limit) == title


def test_chunks_of_a_pdf_know_their_pages():
    pages = [["Alpha one two three four five six. Beta runs"], ["on to the next page here. Omega one two three."]]
    file = read_file(pdf(pages, title="The book"), "b.pdf")
    chunks = chunk_file("b.pdf", file, WORDS, ChunkConfig(10))
    cited = ["b.pdf, page 1: The book", "b.pdf, pages 1-2: The book", "b.pdf, page 2: The book"]
    assert [citation(chunk) for chunk in chunks] == cited
    assert [chunk.metadata.get("last_page") for chunk in chunks] == [None, 2, None]


def test_citations_of_chunks_of_no_file():
    assert citation(Chunk("a", "text")) == "a"
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
        covered.update(range(*spans(chunk)))
    file = read_markdown(text, "a")
    for section in file.sections:
        for block in section.blocks:
            covered.update(range(block.start, block.header_end))  # of a table; its names are above its rows
        for block in section.blocks[:1]:
            missed = "".join(text[at] for at in range(block.start, section.end) if at not in covered)
            assert not missed.replace("```", "").strip()  # marks that do not fit beside their code


def test_a_table_keeps_its_names_of_columns_below_which_the_rule_is_long():
    rule = f"| {'-' * 60} | {'-' * 60} |"
    rows = [f"| part {number} | costs {number} euros |" for number in range(60)]
    text = "\n".join(["| part | price |", rule, *rows])
    chunks = chunks_of(text, 200, tokens=corag.tokens())
    assert len(chunks) > 2 and chunks[0].text.startswith(f"a\n| part | price |\n{rule}\n| part 0 |")
    assert all(chunk.text.startswith("a\n| part | price |\n| part ") for chunk in chunks[1:])


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
