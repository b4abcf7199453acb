"""Units of text that is no plain prose, and what selectors make of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag.text.documents import Document, passage
from corag.text.units import MAX_CHARACTERS, Unit, UnitChunk, units
from corag.types import Candidate

SENTENCE = Unit(1)


def cut(text, title="Title"):
    """The texts of the units of a document, each with what has to stand before it."""
    found = units(passage(Document("d", text, title)), SENTENCE)
    return [(one.source.text[slice(*one.span)], [one.source.text[slice(*lead)] for lead in one.leads]) for one in found]


def texts(text):
    return [unit for unit, _ in cut(text)]


def select(bodies, budget, query="Who does it?", **given):
    documents = [Document(f"d{row}", body, f"Title {row}") for row, body in enumerate(bodies)]
    offered = [Candidate(passage(one), 0.9 - row / 10) for row, one in enumerate(documents)]
    selector = corag.selector("naive", **{"reranker": "bm25", "unit": "sentence", **given})
    return selector.select(query, offered, budget)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "J. I. Clements Stadium is a venue. It opened in 2005.",
            ["J. I. Clements Stadium is a venue.", "It opened in 2005."],
        ),
        ("Dr. Smith of the U.S. Army came at 5 p.m. on Jan. 5. He left.",
         ["Dr. Smith of the U.S. Army came at 5 p.m. on Jan. 5.", "He left."]),
        ("See Fig. 3, e.g. Sec. 2.1. It cost $3.5 million.", ["See Fig. 3, e.g. Sec. 2.1.", "It cost $3.5 million."]),
        ("北京是中国的首都。它有两千万人口！你去过吗？", ["北京是中国的首都。", "它有两千万人口！", "你去过吗？"]),
        ("東京は日本の首都です。人口は1400万人です。", ["東京は日本の首都です。", "人口は1400万人です。"]),
        ("القاهرة هي عاصمة مصر. هل زرتها؟ نعم.", ["القاهرة هي عاصمة مصر.", "هل زرتها؟", "نعم."]),
        ("दिल्ली राजधानी है। यह बड़ी है।", ["दिल्ली राजधानी है।", "यह बड़ी है।"]),
        ("no end of it\nand no end", ["no end of it\nand no end"]),
        ("\ud83d is half. Next.", ["\ud83d is half.", "Next."]),
        ("One.\r\nTwo.\r\n", ["One.", "Two."]),
    ],
)  # fmt: skip
def test_sentences_of_many_kinds_of_text(text, expected):
    assert texts(text) == expected


def test_lists_and_letters():
    assert cut("You need:\n- a bolt. It is long.\n* a nut\n1. first\nb) second\nC) third\nGo on.") == [
        ("You need:", []), ("- a bolt. It is long.", ["You need:"]), ("* a nut", ["You need:"]),
        ("1. first", ["You need:"]), ("b) second", ["You need:"]), ("C) third", ["You need:"]), ("Go on.", []),
    ]  # fmt: skip


def test_a_header_of_several_lines_stands_before_every_row():
    ruled = "| | 2019 || 2018 ||\n| a | b | a | b |\n|---|---|---|---|\n| Total || 5 | 6 |\n| --- |\n| x | 1 |"
    header = "\n".join(ruled.splitlines()[:3])
    assert cut(ruled) == [("| Total || 5 | 6 |", [header]), ("| x | 1 |", [header])]
    plain = " |  | Years ended | \n | 2019 | 2018\nFixed | 1 | 2\nOther | 3 | 4"
    header = "|  | Years ended | \n | 2019 | 2018"
    assert cut(plain) == [("Fixed | 1 | 2", [header]), ("Other | 3 | 4", [header])]


def test_a_cell_that_spans_rows_stands_before_those_below():
    table = "| place | year |\n|---|---|\n| Kell | 1 |\n| | 2 |\n| Oro | 3 |\n| | 4 |"
    assert [leads[1:] for _, leads in cut(table)] == [[], ["| Kell | 1 |"], [], ["| Oro | 3 |"]]
    selection = select([table], 60, query="4?", tokens=corag.tokens(str.split))
    assert "| Oro | 3 |" in selection.text


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("the pump starts, then the valve opens " * 900, ","),
        ("the pump starts then the valve opens " * 900, ("the", "pump", "starts", "then", "valve", "opens")),
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


def test_a_long_item_is_cut_into_its_sentences():
    found = cut("You need:\n- " + "One sentence is here. " * 100)
    assert found[1:3] == [("- One sentence is here.", ["You need:"]), ("One sentence is here.", ["You need:"])]


def test_the_trace_says_what_was_cut():
    selection = select(["They do it, as they always did, " * 200], 300)
    assert selection.trace.details["sentences_cut"] == len(selection.chunks) > 0
    assert "sentences_cut" not in select(["They do it. She does not."], 300).trace.details


def test_a_title_longer_than_the_budget_leaves_nothing_and_says_so():
    document = Document("d", "Short. Text.", "word " * 50)
    selection = corag.selector("naive", reranker="bm25", unit="sentence").select(
        "What?", [Candidate(passage(document), 0.5)], 20
    )
    assert selection.text == "" and "costs more than the budget of 20 tokens" in selection.trace.reason


def test_sentences_that_repeat_stand_once_where_nothing_tells_their_sources_apart():
    same = [Candidate(corag.Chunk(f"c{row}", "It is cold. Fish live here."), 0.5) for row in range(5)]
    other = Candidate(corag.Chunk("c9", "Fish live here. Nobody swims."), 0.4)
    selection = corag.selector("full", unit="sentence").select("Fish?", [*same, other], 100)
    assert selection.text.count("Fish live here.") == 1 and "Nobody swims." in selection.text


PARTS = st.sampled_from(
    ["One is. ", "Dr. No", "\n", "\n\n", "- item\n", "| a | b |\n", "|---|---|\n", "| | 2 |\n", "```\n", "x = 1.\n",
     "首都。", "نعم؟ ", "\u2028", "\x00", "é́", "🙂", ": ", ", ", "word " * 200, " "]
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(PARTS, min_size=1, max_size=12).map("".join), min_size=1, max_size=3),
    st.integers(1, 400),
    st.sampled_from(["sentence", "window(2)"]),
)
def test_every_span_is_the_sources_text_byte_for_byte(bodies, budget, unit):
    selection = select(bodies, budget, unit=unit)
    assert selection.cost_tokens <= budget
    for chunk, (start, end) in zip(selection.chunks, selection.spans, strict=True):
        text = selection.text[start:end].encode("utf-8", "surrogatepass")
        if isinstance(chunk, UnitChunk):
            source = bodies[int(chunk.document[1:])][chunk.metadata["start"] : chunk.metadata["end"]]
            assert text == source.encode("utf-8", "surrogatepass")
            assert chunk.id == f"{chunk.document}#{chunk.metadata['start']}-{chunk.metadata['end']}"
        else:
            assert text == chunk.text.encode("utf-8", "surrogatepass")
