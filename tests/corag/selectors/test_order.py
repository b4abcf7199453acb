"""The order of chosen chunks in the prompt: by hand, and what a conversation keeps of the prompt before."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag import Chunk
from corag.conversation import Conversation
from corag.readers.chat import OllamaReader
from corag.selectors.order import PREVIOUS, arranged
from corag.text.documents import Document, passage
from corag.types import Candidate
from tests.chat_server import ChatServer, Reply
from tests.fakes import CHARACTERS, offer, pools


def part(document, start):
    return Chunk(f"{document}#{start}", f"{document} {start}", {"document": document, "start": start, "end": start + 9})


def test_orders_by_hand():
    chunks = [part("b", 20), Chunk("note", "a note"), part("a", 5), part("b", 0), part("a", 1)]
    assert arranged(chunks, "value") == [0, 1, 2, 3, 4]
    assert arranged(chunks, "ends") == [0, 2, 4, 3, 1]
    assert arranged(chunks, "document") == [3, 0, 1, 4, 2]


def after(before, texts, budget=60, **given):
    selector = corag.selector("full", order="stable", tokenizer=CHARACTERS, **given)
    with PREVIOUS.set(before):
        return selector.select("Why?", offer(*texts) if isinstance(texts[0], str) else texts, budget)


def test_what_was_sent_stays_and_what_is_new_is_appended():
    first = after(None, ["bbbb", "aaaa"])
    assert first.text == "bbbb\n\naaaa" and "prefix_kept" not in first.trace.details
    named = {chunk.text: chunk.id for chunk in first.chunks}
    later = [Candidate(Chunk(named.get(text, text), text), 0.5) for text in ("cccc", "aaaa")]
    second = after(first, later)
    assert second.text == "bbbb\n\naaaa\n\ncccc" and second.trace.details["prefix_kept"] == 1
    assert [second.text[slice(*span)] for span in second.spans] == [chunk.text for chunk in second.chunks]
    assert second.trace.chunk_tokens == [4, 4, 4] and second.trace.chunk_similarities == [None, 0.5, 0.5]
    # "dddd" and "eeee" fit three quarters of 20 characters; beside them only "bbbb" has room.
    third = after(second, ["dddd", "eeee"], 20)
    assert third.text == "bbbb\n\ndddd\n\neeee" and third.trace.details["prefix_kept"] == pytest.approx(6 / 16)
    assert after(third, [Candidate(Chunk("f", "f" * 20), 0.5)], 20).text == "f" * 20  # more than that: nothing stays


def test_sentences_of_a_document_are_appended_below_its_title():
    def select(before, number):
        whole = passage(Document("d", ["One is. Two is.", "Three is."][number], "T"))
        return after(before, [Candidate(whole, 0.5)], unit="sentence")

    second = select(select(None, 0), 1)
    assert second.text == "T\nOne is. Two is.\n\nT\nThree is."
    assert select(second, 1).text == second.text


@settings(deadline=None, max_examples=25)
@given(st.lists(pools, min_size=2, max_size=4), st.integers(1, 60), st.sampled_from(["passage", "sentence"]))
def test_a_conversation_keeps_the_budget_and_every_span(turns, budget, unit):
    before = None
    for pool in turns:
        selection = after(before, pool, budget, unit=unit) if pool else after(before, ["x"], budget, unit=unit)
        assert selection.cost_tokens == len(selection.text) <= budget
        for chunk, (start, end) in zip(selection.chunks, selection.spans, strict=True):
            own = chunk.source.text[slice(*chunk.span)] if hasattr(chunk, "span") else chunk.text
            assert selection.text[start:end] == own
        if (kept := selection.trace.details.get("prefix_kept")) is not None:
            same = round(kept * len(before.text))
            assert selection.text.startswith(before.text[:same])
            assert same == len(before.text) or not selection.text.startswith(before.text[: same + 1])
        before = selection


def test_a_conversation_continues_its_context():
    offers = iter([["Oro is a lake.", "Oro is deep."], ["It is cold.", "Oro is deep.", "Oro is a lake."], ["A mill."]])
    with ChatServer(Reply("a lake")) as server:
        reader = OllamaReader(host=server.host, tokenizer="minilm")
        talk = Conversation(lambda *_: next(offers), reader=reader, method="full(order=stable)", budget_tokens=400)
        first, second = talk.ask("What is Oro?"), talk.ask("Is it cold?")
        assert second.selection.text == f"{first.selection.text}\n\nIt is cold."
        assert second.selection.trace.details["prefix_kept"] == 1
        talk.forget()
        assert "prefix_kept" not in talk.ask("What burned?").selection.trace.details
