"""From a question to a reply, of an index or of a retriever of the user's own; and conversations."""

import asyncio
import io
import json
import threading

import pytest

import corag
from corag.cli.main import main
from corag.errors import InputError
from corag.index import ChunkIndex
from corag.readers.chat import OllamaReader
from corag.reply import embedder_of
from corag.types import Candidate, Chunk
from tests.chat_server import ChatServer
from tests.chat_server import Reply as Sent
from tests.fakes import CHARACTERS

QUESTION = "How deep is the lake in which the Oro ends?"


def test_each_step_hands_on_to_the_next_and_the_reply_is_written_as_json(small_index):
    index, embedder = ChunkIndex.open(small_index), corag.embedder()
    given = {"method": corag.selector("corag"), "reader": "extractive", "num_candidates": 8}
    reply = corag.ask(QUESTION, index, budget_tokens=48, retrieval="hybrid", **given)
    candidates = index.retrieve(QUESTION, embedder.embed([QUESTION])[0], 8, "hybrid")
    selection = corag.selector("corag").select(QUESTION, candidates, 48)
    assert reply.selection.ids == selection.ids != ()
    assert reply.selection.text == selection.text
    assert reply.answer == corag.reader("extractive").answer(QUESTION, selection.text)
    assert "Lake Sable is the deepest lake" in reply.answer.text
    said = json.loads(json.dumps(reply.to_dict(), allow_nan=False))
    assert said["question"] == QUESTION and said["answer"] == reply.answer.text
    assert set(said["citations"].values()) <= set(reply.selection.ids)
    assert (said["method"], said["budget_tokens"]) == ("corag", 48)
    assert said["cost_tokens"] == reply.selection.cost_tokens <= 48
    assert [chunk["id"] for chunk in said["chunks"]] == list(reply.selection.ids)
    assert said["chunks"][0]["metadata"]["document"] == reply.selection.chunks[0].metadata["document"]
    assert "result" not in said["trace"] and len(said["trace"]["chunk_tokens"]) == len(reply.selection)


EVEREST = "How high is Everest?"
FOUND = ["K2 is high.", "Everest is 8,849 metres high.", "Everest lies in Nepal.", "Sand is dry."]


def test_parts_by_name_are_built_once_for_all_questions(monkeypatch, small_index):
    built = []
    monkeypatch.setitem(corag.SELECTORS.parts, "counted", lambda k=1: built.append(k) or corag.selector("top-k", k=k))
    texts = [[corag.ask(EVEREST, FOUND, method="counted", k=k).selection.text for k in (1, 2, 1)] for _ in range(2)]
    assert built == [1, 2] and texts[0] == texts[1]
    with corag.runtime(batch_tokens=64):
        corag.ask(EVEREST, FOUND, method="counted")
    assert built == [1, 2, 1]
    assert embedder_of(ChunkIndex.open(small_index)) is embedder_of(ChunkIndex.open(small_index))
    # Counters of one name are not one.
    counters = [corag.tokens(lambda text, of=of: of * len(text)) for of in (1, 2)]
    costs = [corag.ask(EVEREST, FOUND, method="full", tokenizer=one).selection.cost_tokens for one in counters * 2]
    assert counters[0].name == counters[1].name and costs[1] == 2 * costs[0] and costs[2:] == costs[:2]


def asked_of(retriever, selector="top-k", *, num_candidates=20, **settings):
    given = {"method": corag.selector(selector, tokenizer=CHARACTERS, **settings), "num_candidates": num_candidates}
    return corag.ask(EVEREST, retriever, budget_tokens=200, reader="extractive", **given)


# A fused ranking: the similarities do not fall.
FUSED = [Candidate(Chunk(text, text), cosine) for text, cosine in zip(FOUND, [0.1, 0.9, 0.8, 0.0], strict=True)]


@pytest.mark.parametrize("given", [FOUND, [{"text": text} for text in FOUND], FUSED])
def test_the_ranking_of_the_retriever_is_kept(given):
    calls = []

    def retriever(question, k):
        calls.append((question, k))
        return given

    reply = asked_of(retriever, k=2, num_candidates=3)
    assert reply.selection.text == "\n\n".join(FOUND[:2]) and calls == [(EVEREST, 3)]
    # More than it was asked for is cut.
    assert len(asked_of(retriever, "full", num_candidates=3).selection) == 3


def test_a_generator_is_a_retriever_and_nothing_found_is_no_error():
    assert asked_of(lambda question, k: (text for text in FOUND), "full").selection.text == "\n\n".join(FOUND)
    empty = asked_of(lambda question, k: [])
    assert (empty.selection.ids, empty.selection.trace.reason) == ((), "the retriever found nothing")


def test_asking_in_an_event_loop():
    main = threading.get_ident()
    threads = []

    async def search(question, k):
        await asyncio.sleep(0)
        return FOUND[:k]

    class Searcher:
        async def __call__(self, question, k):
            return await search(question, k)

    def blocking(question, k):
        threads.append(threading.get_ident())
        return FOUND[:k]

    async def all_of_them():
        settings = {"method": "full", "reader": "extractive", "num_candidates": 3}
        return [await corag.aask(EVEREST, one, **settings) for one in (search, Searcher(), blocking)]

    replies = asyncio.run(all_of_them())
    assert [reply.selection.text for reply in replies] == ["\n\n".join(FOUND[:3])] * 3
    assert main not in threads
    with pytest.raises(InputError, match="aask"):
        asked_of(search)


def test_what_was_left_out_says_why():
    texts = ["Sand is dry. Everest is 8,849 metres high.", "Lake Sable is deep. Goats eat grass.", "word " * 90]
    reply = corag.ask(EVEREST, texts, method="top-k(k=1)", budget_tokens=40)
    [source] = reply.sources
    assert (source.marker, source.chunks, source.is_cited, reply.answer) == ("[1]", (0,), False, None)
    reasons = {one.candidate.chunk.text[:4]: one.reason for one in reply.left_out}
    assert reasons == {"Lake": "adds less than its tokens are worth", "word": "is larger than the budget"}
    # Of a long text, a sentence would fit.
    texts = ["Everest is 8,849 metres high.", " ".join(f"Goat {number} eats grass." for number in range(30))]
    [left] = corag.ask(EVEREST, texts, method="top-k(k=1, unit=sentence)", budget_tokens=40).left_out
    assert (left.tokens > 40, left.reason) == (True, "adds less than its tokens are worth")


def test_citations_are_those_of_sources_that_are_there():
    texts = ["Everest is in Nepal.\n\nGoats eat grass.", "K2 is in Pakistan. It is 8,611 metres high."]
    with ChatServer(Sent("K2 has 8,611 metres [1], not [7].")) as server:
        reply = corag.ask("How high is K2?", texts, method="full", reader=f"ollama(host={server.host})")
    assert [source.marker for source in reply.sources] == ["[1-2]", "[3]"]  # two parts in the first text
    said = reply.to_dict()
    assert (said["citations"], said["unknown_citations"]) == ({"[1-2]": reply.selection.ids[0]}, ["[7]"])


TURNS = [("How deep is Lake Sable?", "310 metres")]
FOLLOW_UP = "Which river ends there?"


def contents(chat):
    return [message["content"] for message in chat["messages"]]


@pytest.mark.parametrize(
    ("sent", "alone"),
    [
        (Sent("<think>it</think> Which river ends in\nLake Sable?"), "Which river ends in Lake Sable?"),
        (Sent(""), FOLLOW_UP),
        (Sent("Which river", done_reason="length"), FOLLOW_UP),
    ],
)
def test_a_language_model_makes_a_question_stand_alone(sent, alone):
    with ChatServer(sent) as server:
        reader = OllamaReader(host=server.host)
        assert reader.standing_alone(FOLLOW_UP, []) == FOLLOW_UP and not server.chats
        assert reader.standing_alone(FOLLOW_UP, TURNS) == alone
    [asked] = server.chats
    assert "Question: How deep is Lake Sable?\nAnswer: 310 metres" in contents(asked)[1]
    assert f"Last question: {FOLLOW_UP}" in contents(asked)[1]


def test_questions_from_a_pipe(small_index, monkeypatch, capsys):
    typed = "How deep is Lake Sable?\n\n  Where is it?  \n/sources\n/exit\nnever asked\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    with ChatServer(Sent("310 metres [1]"), Sent("Where is Lake Sable?"), Sent("In Varn [9]")) as server:
        reader = f"ollama(host={server.host})"
        assert main(["chat", "--index", str(small_index), "--method", "top-k(k=2)", "--reader", reader]) == 0
        assert len(server.chats) == 3
    said = capsys.readouterr()
    assert "310 metres [1]" in said.out and "asked as: Where is Lake Sable?" in said.out
    assert said.out.count("Cited but not in the context: [9]") == 2 and "error" not in said.err  # and by /sources


def test_a_conversation_says_what_is_wrong_with_an_answer_and_goes_on(small_index, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("How deep is Lake Sable?\nHow deep?\n"))
    with ChatServer(Sent("Lake Sable is", ending="drop"), Sent("310", done_reason="length")) as server:
        reader = f"ollama(host={server.host})"
        assert main(["chat", "--index", str(small_index), "--method", "top-k(k=2)", "--reader", reader]) == 0
    shown = capsys.readouterr().out
    assert "Lake Sable is\n> How deep?\n310\n" in shown and "The answer was cut" in shown


def test_turns_that_do_not_fit_the_window_are_not_told():
    with ChatServer(Sent("Which river ends in Lake Sable?")) as server:
        reader = OllamaReader(host=server.host, num_ctx=900, max_answer_tokens=100)
        long = [("What is sand?", "Sand is dry. " * 300), *TURNS]
        assert reader.standing_alone(FOLLOW_UP, long) == "Which river ends in Lake Sable?"
        assert reader.standing_alone(FOLLOW_UP, long[:1]) == FOLLOW_UP
    [asked] = server.chats
    assert "310 metres" in contents(asked)[1] and "Sand" not in contents(asked)[1]
