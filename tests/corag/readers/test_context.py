"""What a context consists of, where an answer came from, and what is quoted and cited of it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.readers.chat import OllamaReader
from corag.readers.context import (
    answer_chunk,
    sentence_at,
    sentences,
    with_sentences,
)
from corag.readers.extractive import ExtractiveReader
from corag.reply import Quote, Reply, certainty, quotes
from corag.text.documents import SEPARATOR, Document, passage
from corag.text.units import GAP, LINE_GAP, Unit, assemble, units
from corag.types import Answer, Selection
from tests.chat_server import ChatServer
from tests.chat_server import Reply as Sent
from tests.corag.test_ask import COUNTS

# --- The chunk of an answer ---

CHUNKS = SEPARATOR.join(
    [
        "Bonn\nBonn was the capital of West Germany.",
        "Berlin\nBerlin lies on the Spree; the mayor of Berlin, Anna Weiss, took office in 1999.",
        "Anna Weiss\nWeiss, Anna: born in 1950 near Kiel.",
    ]
)


@pytest.mark.parametrize(
    ("answer", "chunk"),
    [
        ("Anna Weiss", 1),  # two chunks hold both words side by side: the earlier one
        ("weiss anna", 2),  # only the last holds them in this order
        ("1950", 2),
        ("The Spree.", 1),
        ("the capital", 0),
        ("in 1999, near Bremen", 1),  # half of the words; the third chunk holds two as well, but comes later
        ("a village near Bremen", None),
        ("yes", None),
        ("195", None),
        ("", None),
        (" ... ", None),
    ],
)
def test_the_chunk_of_an_answer(answer, chunk):
    assert answer_chunk(answer, CHUNKS) == chunk


@given(st.lists(st.text(st.characters(codec="utf-8", categories=["L", "N", "Z"]), min_size=1), min_size=1, max_size=4))
def test_a_whole_chunk_came_from_the_first_chunk_that_holds_its_words_in_a_row(texts):
    words = [re.findall(r"\w+", text.casefold()) for text in texts]
    for text, phrase in zip(texts, words, strict=True):
        holding = [
            place
            for place, there in enumerate(words)
            if any(there[start : start + len(phrase)] == phrase for start in range(len(there)))
        ]
        assert answer_chunk(text, SEPARATOR.join(texts)) == (holding[0] if phrase else None)


# --- Sentences and quotes ---

CONTEXT = f"Mill\nIt burned in\n1830. Otto built it.{GAP}Nobody knows why.\n\nLake\nThe lake is cold."


def texts(context):
    return [context[start:end] for start, end in sentences(context)]


def test_sentences_hold_neither_titles_nor_marks():
    assert texts(CONTEXT) == ["It burned in\n1830.", "Otto built it.", "Nobody knows why.", "The lake is cold."]
    assert texts("") == texts(" \n\n ") == texts(LINE_GAP) == []


@given(st.text("aB. \n!?…\x00é🦔א", max_size=60))
def test_sentences_are_in_order_and_hold_no_outer_space(context):
    flat = [0, *(place for span in sentences(context) for place in span), len(context)]
    assert flat == sorted(flat)
    assert all(text == text.strip() != "" for text in texts(context))
    for start, end in sentences(context):
        assert sentence_at(context, start) == sentence_at(context, end - 1) == (start, end)


def test_an_answer_is_marked_in_its_sentence_on_one_line():
    at = CONTEXT.index("1830")
    answer = with_sentences(Answer("1830", 0.5, ((at, at + 4),)), CONTEXT, [sentence_at(CONTEXT, at)])
    assert answer.sentence == "It burned in 1830." and answer.found
    [quote] = quotes(answer, CONTEXT)
    assert quote == Quote("It burned in 1830.", (13, 17), 5)
    assert quote.pieces == ("It burned in ", "1830", ".")


def test_several_sentences_are_an_explanation_with_nothing_marked():
    spans = sentences(CONTEXT)
    answer = with_sentences(Answer("Otto", 0.5, (spans[1],)), CONTEXT, spans[1:3])
    assert answer.sentence == f"Otto built it.{GAP}Nobody knows why."
    assert [quote.marked for quote in quotes(answer, CONTEXT)] == [None, None]
    neighbours = with_sentences(answer, CONTEXT, spans[:2])
    assert neighbours.sentence == "It burned in 1830. Otto built it."
    assert with_sentences(answer, CONTEXT, []).sentence == ""


@pytest.mark.parametrize(
    ("confidence", "words"),
    [(None, None), (0.0, "a guess"), (0.25, "possibly"), (0.5, "likely"), (0.8, "very likely"), (1.0, "very likely")],
)
def test_confidence_in_words(confidence, words):
    assert certainty(confidence) == words


# --- Contexts of chosen sentences ---

QUESTION = "Who built the mill?"
MILL = Document(
    "mill",
    "The mill stands in Aldorf. It burned in 1830. Otto Brunner built it in 1790.\n\nToday it is a museum.",
    "Mill",
)
LAKE = Document("lake", "The lake is cold. Nobody swims there.", "Lake")
CHOSEN = [units(passage(LAKE), Unit(1))[0], *(units(passage(MILL), Unit(1))[place] for place in (0, 2, 3))]
TEXT = (
    f"Lake\nThe lake is cold.\n\nMill\nThe mill stands in Aldorf.{GAP}Otto Brunner built it in 1790."
    "\n\nToday it is a museum."
)


def replied(answer):
    text, spans = assemble(CHOSEN)
    assert text == TEXT
    return Reply(QUESTION, answer, Selection(tuple(CHOSEN), text, 30, 64, 0.5, "some", spans=tuple(spans)), {}, COUNTS)


def test_a_document_has_one_marker_however_many_of_its_sentences_were_chosen():
    documents = [{"id": one.id, "title": one.title, "text": one.text.replace("\n\n", " ")} for one in (MILL, LAKE)]
    with ChatServer(Sent("Otto Brunner [1].")) as server:
        reader = OllamaReader(host=server.host, prompt="cited")
        selector = corag.selector("full", unit="sentence")
        reply = corag.ask(QUESTION, documents, selector=selector, reader=reader, budget_tokens=2000)
        sent = server.chats[0]["messages"][1]["content"]
    assert len(reply.selection) == 6
    assert "[1] Mill\nThe mill stands in Aldorf. It burned" in sent and "[2] Lake\nThe lake is cold. Nobody" in sent
    assert "[3]" not in sent
    assert reply.citations == {"[1]": "mill#46-76"}
    assert MILL.text[46:76] == "Otto Brunner built it in 1790."
    said = reply.to_dict()["chunks"]
    assert [chunk["marker"] for chunk in said] == ["[1]"] * 4 + ["[2]"] * 2


@pytest.mark.parametrize(
    ("answer", "chunk", "cited"),
    [
        (Answer("Otto Brunner [2]", chunk=1, citations=(1,)), "Otto Brunner built it in 1790.", {"[2]": 2}),
        (Answer("In Aldorf, by the cold lake [2][1]", chunk=1, citations=(1, 0)), None, {"[2]": 1, "[1]": 0}),
        (Answer("It is shown [3]", chunk=2, citations=(2,)), "Today it is a museum.", {"[3]": 3}),
        (Answer("Someone [2]", chunk=1, citations=(1,)), "The mill stands in Aldorf.", {"[2]": 1}),
        (Answer("1790", spans=(tuple(TEXT.index("1790") + i for i in (0, 4)),), chunk=1), "Otto Brunner built", {}),
        (Answer("Mill", spans=((TEXT.index("Mill"), TEXT.index("Mill") + 4),), chunk=1), "The mill stands", {}),
    ],
)
def test_citations_lead_to_the_sentence_that_says_it(answer, chunk, cited):
    reply = replied(answer)
    assert reply.citations == {marker: CHOSEN[place].id for marker, place in cited.items()}
    if chunk is not None:
        (found,) = (one for one in reply.selection.chunks if one.id == reply.answer_chunk)
        assert found.text.split("\n", 1)[1].startswith(chunk)


def test_the_extractive_reader_quotes_no_mark():
    context = f"Mill\nThe mill burned{GAP}Otto Brunner built the mill.{LINE_GAP}- Who built the wheel is not known"
    answer = ExtractiveReader(sentences=3).answer(QUESTION, context)
    assert [context[start:end] for start, end in answer.spans] == [
        "The mill burned", "Otto Brunner built the mill.", "- Who built the wheel is not known",
    ]  # fmt: skip
    assert "…" not in answer.text
