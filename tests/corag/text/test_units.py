"""Chunks into units and back: spans are the source's text, whatever the text."""

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corag.text.documents import Document, passage, with_title
from corag.text.units import (
    GAP,
    LINE_GAP,
    MAX_CHARACTERS,
    MAX_WINDOW,
    UnitChunk,
    assemble,
    ranges_of,
    sentences_of,
    source_of,
    unit_size,
    units,
)
from corag.types import Chunk

SENTENCE = unit_size("sentence")
PLAIN = Chunk("p", "A passage.")
MANUAL = Path(__file__).with_name("manual.md").read_text(encoding="utf-8")
LINES = st.sampled_from(
    ["A fact. Another fact!", "- an item", "| a | b |", "| | b |", "|---|---|", "```", "", "   ", "1. first",
     "which is:", "今天。明天？", "Use", "## Use", "Why?", "    Set in."]
)  # fmt: skip
TEXTS = st.text(max_size=200) | st.lists(LINES | st.text(max_size=40), min_size=4, max_size=12).map("\n".join)


def manual(title="Pumps", start=10):
    text = f"{title}\n{MANUAL}" if title else MANUAL
    return Chunk("m#10-500", text, {"document": "m", "title": title, "start": start, "end": start + len(MANUAL)})


def bodies(chunks):
    return [chunk.source.text[slice(*chunk.span)] for chunk in chunks]


@given(TEXTS, st.sampled_from(["", "A title"]), st.integers(1, 3), st.integers(0, 5), st.randoms())
@example("||\n||\n||", "", 1, 0, Random(0))
@example("|a|b|\n|-|-|\n|1|2|\n|-|-|\n|3|4|", "A title", 1, 0, Random(0))
@example("|a|b|\n|-|-|\n|1|2|\n| |3|\n\nSo:\n- four\n- five", "A title", 2, 1, Random(0))
@example("|a|b|\n|-|-|\n|1|2|\n| |3|", "A title", 1, 1, Random(0))
@example("A fact.\n```\nx = 1", "", 1, 0, Random(0))
def test_units_are_spans_of_the_document_and_all_of_them_are_the_document(text, title, size, before, random):
    place = {"document": "d", "title": title, "start": before, "end": before + len(text)}
    chunk, document = Chunk("c", with_title(title, text), place), "x" * before + text
    assert ranges_of(chunk) == [("d", before, before + len(text))]
    assert (ranges_of(PLAIN), source_of(PLAIN)) == (None, PLAIN)
    found = units(chunk, size)
    if not isinstance(found[0], UnitChunk):
        assert found == [chunk] and sentences_of(chunk) == [(0, len(chunk.text))]
        return
    starts, ends = (set(borders) for borders in zip(*sentences_of(chunk), strict=True))
    for one in found:
        start, end = one.metadata["start"], one.metadata["end"]
        assert source_of(one) == chunk
        assert one.id == (f"d#{start}-{end}" if len(found) > 1 else "c")
        assert document[start:end] == one.source.text[slice(*one.span)] == document[start:end].strip()
        assert one.text.startswith(f"{title}\n" if title else "")
        assert one.span[0] in starts and one.span[1] in ends
        shown = [one.source.text[slice(*span)] for span in (one.span, *one.leads)]
        assert [document[first:last] for _, first, last in ranges_of(one)] == shown
    assert all(first.span[1] <= second.span[0] for first, second in pairwise(found))
    # Nothing is lost, or shown twice, but white space and rules between rows, which a mark stands for.
    shown, whole = (
        "".join(one.translate(str.maketrans("", "", "|:-+…")).split())
        for one in (assemble(random.sample(found, len(found)))[0], chunk.text)
    )
    assert shown == whole


@given(TEXTS, st.integers(1, 2), st.randoms())
def test_chosen_units_stand_in_the_text_where_their_spans_say(text, size, random):
    found = units(passage(Document("d", text, "T")), size) + units(passage(Document("e", text)), size) + [PLAIN]
    chosen = random.sample(found, random.randint(0, len(found)))
    joined, spans = assemble(chosen)
    for chunk, (start, end) in zip(chosen, spans, strict=True):
        body = chunk.source.text[slice(*chunk.span)] if isinstance(chunk, UnitChunk) else chunk.text
        assert joined[start:end] == body


def test_blocks_of_a_manual():
    found = units(manual(), SENTENCE)
    assert bodies(found) == [
        "Start it.", "See Fig. 3 first!", "Then do:\n- open the valve. Wait\n- press the key",
        "Table of parts:\n\n| part | no |\n|---|---|\n| seal | 5 |\n| bolt | 7 |",
        "```\ncode. more.\nx = 1\n```", "Last words.", "今天天气好。", "明天呢？",
    ]  # fmt: skip
    found = units(manual(), SENTENCE, 40)
    assert bodies(found)[2:6] == ["- open the valve. Wait", "- press the key", "| seal | 5 |", "| bolt | 7 |"]
    assert found[2].text == "Pumps\nThen do:\n- open the valve. Wait"
    assert found[5].text == "Pumps\nTable of parts:\n\n| part | no |\n|---|---|\n| bolt | 7 |"
    assert found[0].id == "m#10-19"


def test_units_of_a_document_stand_in_its_order_below_one_title():
    found = units(manual(), SENTENCE, 40)
    text, spans = assemble([found[5], found[3], found[0], found[7]])
    assert text == (
        f"Pumps\nStart it.{GAP}Then do:{LINE_GAP}- press the key\n\nTable of parts:\n\n| part | no |\n|---|---|"
        f"{LINE_GAP}| bolt | 7 |{LINE_GAP}Last words."
    )
    assert [text[start:end] for start, end in spans] == ["| bolt | 7 |", "- press the key", "Start it.", "Last words."]


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


def test_windows_and_passages():
    chunk = Chunk("c", "One. Two. Three. Four. Five.")
    assert bodies(units(chunk, unit_size("window(2)"))) == ["One. Two.", "Three. Four.", "Five."]
    assert units(chunk, unit_size("passage")) == [chunk]
    assert unit_size(f"window({MAX_WINDOW})") == MAX_WINDOW == 1000


def test_windows_do_not_repeat_what_leads_into_the_next_one():
    one, two = units(Chunk("c", "Start.\n\nDo it:\n- open\n- close"), 2, 0)
    assert bodies([one, two]) == ["Start.\n\nDo it:\n- open", "- close"] and two.text == "Do it:\n- close"
    assert assemble([two, one])[0] == "Start.\n\nDo it:\n- open\n- close"
    assert bodies(units(Chunk("c", "One. Two.", {"title": "Other"}), SENTENCE)) == ["One.", "Two."]


def cut(text, most_led=0):
    """The texts of the units of a document, each with what has to stand before it."""
    found = units(passage(Document("d", text, "Title")), SENTENCE, most_led)
    return [(one.source.text[slice(*one.span)], [one.source.text[slice(*lead)] for lead in one.leads]) for one in found]


def texts(text):
    return [unit for unit, _ in cut(text)]


def test_a_header_of_several_lines_stands_before_every_row():
    ruled = "So.\n\n| | 2019 || 2018 ||\n| a | b | a | b |\n|---|---|---|---|\n| Total || 5 | 6 |\n| --- |\n| x | 1 |"
    header = "\n".join(ruled.splitlines()[2:5])
    assert cut(ruled) == [("So.", []), ("| Total || 5 | 6 |", [header]), ("| x | 1 |", [header])]
    plain = "So.\n |  | Years ended | \n | 2019 | 2018\nFixed | 1 | 2\nOther | 3 | 4"
    header = "|  | Years ended | \n | 2019 | 2018"
    assert cut(plain)[1:] == [("Fixed | 1 | 2", [header]), ("Other | 3 | 4", [header])]


def test_a_cell_that_spans_rows_stands_before_those_below():
    table = "| place | year |\n|---|---|\n| | 0 |\n| Kell | 1 |\n| | 2 |\n| Oro | 3 |\n| | 4 |"
    assert [leads[1:] for _, leads in cut(table)] == [[], [], ["| Kell | 1 |"], [], ["| Oro | 3 |"]]
    assert [leads[1:] for _, leads in cut("| place | year |\n| Kell | 1 |\n| | 2 |")] == [[], ["| Kell | 1 |"]]


def parts_of(name):
    """The texts of a file, which are divided by marks."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8").removesuffix("\n").split("\n%%\n")


# A mark stands where a unit ends and another one follows.
@pytest.mark.parametrize("marked", parts_of("units.txt"))
def test_what_cannot_be_understood_alone_is_one_unit_with_what_follows(marked):
    assert texts(marked.replace("¦", "")) == [unit.strip() for unit in marked.split("¦")]


def test_headers_and_marks_are_no_units_and_what_is_long_is_not_joined():
    assert texts("Use\n| a | b |\n|---|---|\n| 1 | 2 |") == ["Use", "| 1 | 2 |"]
    assert texts("It runs.\n\n```py") == ["It runs."]
    assert texts(f"Then:\n\n{'x' * 799}") == ["Then:", "x" * 799]


def test_what_leads_into_a_list_or_a_table_comes_with_each_item_and_not_alone():
    lists = "Use\n\nDo:\n- open:\n  - left\n- close"
    assert cut(lists) == [("- open:\n  - left", ["Use\n\nDo:"]), ("- close", ["Use\n\nDo:"])]
    assert texts("A fact. " * 200 + "\n- One. Two.")[-1] == "- One. Two."
    assert cut("先：\n- 一") == [("- 一", ["先："])]
    assert cut("A fact.\n- open") == [("A fact.", []), ("- open", [])]
    assert cut("Costs:\n\n| a | b |\n\n- open") == [("Costs:\n\n| a | b |", []), ("- open", [])]
    table = "Costs:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |"
    assert [leads for _, leads in cut(table)] == [[table[: table.index("| 1") - 1]]] * 2


def test_the_marks_around_code_are_no_unit_of_their_own():
    long = "```py\n" + "x = 1;\n" * 250 + "```"
    parts = texts(f"Run:\n\n{long}\n\nEnd.")
    assert parts[0] == "Run:" and parts[1].startswith("```py\nx") and parts[-2].endswith("x = 1;\n```")


@pytest.mark.parametrize("text", parts_of("led.txt"))
def test_what_a_colon_leads_into_is_one_unit_with_it(text):
    assert texts_led(f"A fact. Another.\n\n{text}\n\nLast. Words.") == ["A fact.", "Another.", text, "Last.", "Words."]
    assert texts_led(f"{text[:-1]}{' x' * MAX_CHARACTERS}")[0] != text  # too long: one by one


def texts_led(text):
    return [unit for unit, _ in cut(text, MAX_CHARACTERS)]


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("the pump starts, then the valve opens " * 900, ","),
        ("x" * 20_000, "x"),
        ("北京是中国的首都，" * 3000, "，"),
        ("```\n" + "print(1, 2)\n" * 900 + "```", ")"),
        ("| a | b |\n|---|---|\n" + "| word " * 3000 + "|", "|"),
    ],
)
def test_what_is_too_long_is_cut_where_it_pauses(text, ends):
    parts = texts(text)
    assert len(parts) > 5 and max(map(len, parts)) <= MAX_CHARACTERS
    assert sum(part.endswith(ends) for part in parts) >= len(parts) // 2
    assert "".join("".join(parts).split()) in "".join(text.split())
