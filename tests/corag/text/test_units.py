"""Chunks into units and back: spans are the source's text, whatever the text."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corag.errors import InputError
from corag.text.documents import Document, passage
from corag.text.units import GAP, LINE_GAP, MAX_CHARACTERS, Unit, UnitChunk, assemble, units
from corag.types import Chunk

SENTENCE = Unit.parse("sentence")
MANUAL = """Start it. See Fig. 3 first! Then do:
- open the valve
- press the key

Table of parts:

| part | no |
|---|---|
| seal | 5 |
| bolt | 7 |

```
code. more.
x = 1
```
Last words. 今天天气好。明天呢？"""
LINES = st.sampled_from(
    [
        "A fact. Another fact!",
        "- an item",
        "| a | b |",
        "|---|---|",
        "```",
        "",
        "   ",
        "1. first",
        "which is:",
        "今天。明天？",
    ]
)
TEXTS = st.text(max_size=200) | st.lists(LINES | st.text(max_size=40), max_size=12).map("\n".join)


def manual(title="Pumps", start=10):
    text = f"{title}\n{MANUAL}" if title else MANUAL
    return Chunk("m#10-500", text, {"document": "m", "title": title, "start": start, "end": start + len(MANUAL)})


def bodies(chunks):
    return [chunk.source.text[slice(*chunk.span)] for chunk in chunks]


@given(TEXTS, st.sampled_from(["", "A title"]), st.integers(1, 3))
@example("||\n||\n||", "", 1)
@example("|a|b|\n|-|-|\n|1|2|\n|-|-|\n|3|4|", "A title", 1)
def test_spans_are_the_documents_text(text, title, size):
    document = Document("d", text, title)
    chunk = passage(document)
    found = units(chunk, Unit(size))
    for one in found:
        if isinstance(one, UnitChunk):
            start, end = one.metadata["start"], one.metadata["end"]
            assert one.id == f"d#{start}-{end}"
            assert document.text[start:end] == one.source.text[slice(*one.span)] == document.text[start:end].strip()
            assert one.text.startswith(f"{title}\n" if title else "")
    places = [one.span for one in found if isinstance(one, UnitChunk)]
    assert all(first[1] <= second[0] for first, second in pairwise(places))
    if text.strip() and places:
        # Nothing but white space and rules between rows is neither in a unit nor in what leads into one.
        left = list(chunk.text)
        for start, end in [*places, *(lead for one in found for lead in one.leads)]:
            left[start:end] = " " * (end - start)
        assert not "".join(left[len(chunk.text) - len(text) :]).translate(str.maketrans("", "", "|:-+")).strip()


@given(TEXTS, st.integers(1, 2), st.randoms())
def test_chosen_units_stand_in_the_text_where_their_spans_say(text, size, random):
    found = units(passage(Document("d", text, "T")), Unit(size)) + units(passage(Document("e", text)), Unit(size))
    chosen = random.sample(found, random.randint(0, len(found)))
    joined, spans = assemble(chosen)
    for chunk, (start, end) in zip(chosen, spans, strict=True):
        body = chunk.source.text[slice(*chunk.span)] if isinstance(chunk, UnitChunk) else chunk.text
        assert joined[start:end] == body


def test_blocks_of_a_manual():
    found = units(manual(), SENTENCE)
    assert bodies(found) == [
        "Start it.", "See Fig. 3 first!", "Then do:", "- open the valve", "- press the key", "Table of parts:",
        "| seal | 5 |", "| bolt | 7 |", "```\ncode. more.\nx = 1\n```", "Last words.", "今天天气好。", "明天呢？",
    ]  # fmt: skip
    assert found[3].text == "Pumps\nThen do:\n- open the valve"
    assert found[7].text == "Pumps\n| part | no |\n|---|---|\n| bolt | 7 |"
    assert found[0].id == "m#10-19"


def test_all_units_together_are_the_text():
    assert assemble(units(manual(), SENTENCE))[0] == manual().text


def test_units_of_a_document_stand_in_its_order_below_one_title():
    found = units(manual(), SENTENCE)
    text, spans = assemble([found[7], found[4], found[0], found[9]])
    assert text == (
        f"Pumps\nStart it.{GAP}Then do:{LINE_GAP}- press the key{LINE_GAP}| part | no |\n|---|---|{LINE_GAP}"
        f"| bolt | 7 |{LINE_GAP}Last words."
    )
    assert [text[start:end] for start, end in spans] == ["| bolt | 7 |", "- press the key", "Start it.", "Last words."]


def test_documents_stand_in_the_order_in_which_they_were_chosen():
    first, second = (units(passage(Document(name, "One. Two.", name.upper())), SENTENCE) for name in "ab")
    text, _ = assemble([second[1], first[0], second[0], Chunk("c", "Whole.")])
    assert text == "B\nOne. Two.\n\nA\nOne.\n\nWhole."


def test_units_stand_below_the_heading_of_their_own_part():
    sections = [
        Chunk(f"d#{start}-{end}", f"{title}\n{text}", {"document": "d", "title": title, "start": start, "end": end})
        for title, text, start, end in (("Start", "Open it. Wait.", 0, 14), ("Stop", "Close it. Go.", 16, 29))
    ]
    (opened, waited), (closed, gone) = (units(chunk, SENTENCE) for chunk in sections)
    text, spans = assemble([gone, waited, closed])
    assert text == "Stop\nClose it. Go.\n\nStart\nWait."
    assert [text[start:end] for start, end in spans] == ["Go.", "Wait.", "Close it."]
    assert assemble([opened, gone])[0] == "Start\nOpen it.\n\nStop\nGo."


def test_units_of_neighbouring_chunks_are_joined():
    text = "One here. Two here. Three here."
    chunks = [
        Chunk(f"d#{start}-{end}", f"T\n{text[start:end]}", {"document": "d", "title": "T", "start": start, "end": end})
        for start, end in ((0, 20), (20, 31))
    ]
    one, two, three = (unit for chunk in chunks for unit in units(chunk, SENTENCE))
    assert [one.id, two.id, three.id] == ["d#0-9", "d#10-19", "d#20-31"]
    assert assemble([three, two])[0] == "T\nTwo here. Three here."
    assert assemble([three, one])[0] == f"T\nOne here.{LINE_GAP}Three here."


def test_a_long_sentence_is_cut_after_a_clause_else_after_a_word_else_anywhere():
    clauses = ", ".join(["some words that go on"] * 200)
    for text in (clauses, "word " * 1000, "x" * 5000):
        found = bodies(units(Chunk("c", text), SENTENCE))
        assert len(found) > 4 and max(map(len, found)) <= MAX_CHARACTERS
        assert "".join("".join(found).split()) == "".join(text.split())
    assert all(part.endswith(",") for part in bodies(units(Chunk("c", clauses), SENTENCE))[:-1])


def test_windows_and_passages():
    chunk = Chunk("c", "One. Two. Three. Four. Five.")
    assert bodies(units(chunk, Unit.parse("window(2)"))) == ["One. Two.", "Three. Four.", "Five."]
    assert units(chunk, Unit.parse("passage")) == [chunk]
    assert units(Chunk("c", " \n "), SENTENCE) == [Chunk("c", " \n ")]
    assert [str(Unit.parse(text)) for text in ("passage", "sentence", "window(3)")] == [
        "passage",
        "sentence",
        "window(3)",
    ]


@pytest.mark.parametrize("text", ["", "word", "window", "window(0)", "window(-1)", "window(x)", None, 3])
def test_what_is_no_unit(text):
    with pytest.raises(InputError, match="must be passage, sentence, window"):
        Unit.parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("She met Dr. Smith. He left at 5 p.m. on Jan. 3.", ["She met Dr. Smith.", "He left at 5 p.m. on Jan. 3."]),
        ("مرحبا بك. كيف حالك؟", ["مرحبا بك.", "كيف حالك؟"]),
        ("no end at all", ["no end at all"]),
        ("| only | a header |", ["| only | a header |"]),
        ("```\nnever closed. Code", ["```\nnever closed. Code"]),
        ("* a\n* b", ["* a", "* b"]),
    ],
)
def test_sentences_of_many_kinds(text, expected):
    assert bodies(units(Chunk("c", text), SENTENCE)) == expected
