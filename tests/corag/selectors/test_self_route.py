"""Self-route: a small selection if the reader can answer from it, else a large one."""

import pytest

import corag
from corag.types import Answer
from tests.fakes import CHARACTERS, FixedReader, offer

POOL = offer("aaaa", "bbbb", "cccc", "dddd")


def route(reader, budget=100, k=2, **settings):
    made = corag.selector("self-route", reader=reader, part=f"top-k(k={k})", tokenizer=CHARACTERS, **settings)
    return made.select("Why?", POOL, budget)


def test_an_answer_stays_with_the_part():
    reader = FixedReader(Answer("Because."))
    selection = route(reader)
    assert selection.ids == ("c0", "c1")
    assert reader.asked == [("Why?", "aaaa\n\nbbbb")]
    assert (selection.trace.details["routed"], selection.trace.details["answer"]) == ("top-k", "Because.")


@pytest.mark.parametrize(("text", "confidence"), [("", None), (" ", 0.9), ("Because.", 0.4)])
def test_no_answer_goes_to_the_full_context(text, confidence):
    selection = route(FixedReader(Answer(text, confidence)))
    assert selection.ids == ("c0", "c1", "c2", "c3")
    assert selection.trace.details["routed"] == "full"
    assert "answer" not in selection.trace.details


def test_the_reader_is_not_asked_where_there_is_no_more_to_read():
    reader = FixedReader(Answer(""))
    assert route(reader, k=4).trace.details["asked"] is False
    assert route(reader, budget=10).ids == ("c0", "c1")
    assert reader.asked == []
