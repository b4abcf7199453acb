"""Conversations: what a question refers to, what a prompt holds of what was said, and the budget of both."""

import io

import pytest

from corag.cli.main import main
from corag.conversation import Conversation
from corag.readers.chat import OllamaReader
from corag.registry import READERS
from corag.types import Answer
from tests.chat_server import ChatServer
from tests.chat_server import Reply as Sent
from tests.fakes import EchoReader

TEXTS = ["Lake Sable is 310 metres deep.", "The Oro ends in Lake Sable.", "The mill burned in 1830."]
SETTINGS = {"method": "top-k(k=2)"}


def test_a_question_gets_the_subject_of_the_last_one_that_can_be_understood_alone():
    reader = EchoReader()
    talk = Conversation(TEXTS, reader=reader, **SETTINGS)
    asked = ["How deep is Lake Sable?", "Where is it?", "Why?", "When did the mill burn?", "Who built it?"]
    replies = [talk.ask(question) for question in asked]
    assert [query for query, _ in reader.asked] == [reply.question for reply in replies] == [
        asked[0], "Where is it? (Lake Sable)", "Why? (Lake Sable)", asked[3], "Who built it? (mill burn)"
    ]  # fmt: skip
    assert [turn.question for turn in talk.turns] == asked
    talk.forget()
    assert talk.ask("Why?").question == "Why?"


def contents(chat):
    return [message["content"] for message in chat["messages"]]


def test_a_language_model_rewrites_and_is_told_what_was_said():
    replies = [Sent("310 metres"), Sent("<think>it</think> Which river ends in Lake Sable?"), Sent("The Oro")]
    with ChatServer(*replies) as server:
        reader = OllamaReader(host=server.host)
        talk = Conversation(TEXTS, reader=reader, budget_tokens=2000, **SETTINGS)
        talk.ask("How deep is Lake Sable?")
        reply = talk.ask("Which river ends there?")
        first, rewrite, second = server.chats
    assert reply.question == "Which river ends in Lake Sable?" and reply.answer.text == "The Oro"
    assert "Question: How deep is Lake Sable?\nAnswer: 310 metres" in contents(rewrite)[1]
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "user"]
    assert contents(second)[1:3] == ["How deep is Lake Sable?", "310 metres"]
    assert "Question: Which river ends in Lake Sable?" in contents(second)[3]
    assert len(contents(first)) == 2
    # The budget is that of the whole prompt, the history in it.
    assert reply.counts.prompt_tokens <= 2000
    assert reply.counts.prompt_tokens > reader.prompt_tokens(reply.question, reply.selection.text)


def test_old_turns_are_dropped_first():
    with ChatServer(*[Sent("word " * 80)] * 9) as server:
        talk = Conversation(TEXTS, reader=OllamaReader(host=server.host), budget_tokens=700, **SETTINGS)
        for number in range(5):
            talk.ask(f"What is thing number {number}?")
        last = contents(server.chats[-1])
    kept = [text for text in last if text.startswith("What is thing number")]
    assert 0 < len(kept) < 4 and kept[-1].endswith("3?")


@pytest.fixture
def echo(monkeypatch):
    reader = EchoReader()
    monkeypatch.setitem(READERS.parts, "echo", lambda: reader)
    return reader


def test_questions_from_a_pipe(small_index, monkeypatch, capsys, echo):
    typed = "How deep is Lake Sable?\n\n  Where is it?  \n/exit\nnever asked\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert main(["chat", "--index", str(small_index), "--method", "top-k", "--reader", "echo"]) == 0
    said = capsys.readouterr()
    assert [query for query, _ in echo.asked] == ["How deep is Lake Sable?", "Where is it? (Lake Sable)"]
    assert "│ How deep is Lake Sable? " in said.out and "understood as: Where is it? (Lake Sable)" in said.out
    assert "tokens" not in said.out and said.err == ""


def test_ctrl_c_stops_an_answer_and_not_a_conversation(small_index, monkeypatch, capsys, echo):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def answer(query, context):
        if "slow" in query:
            raise KeyboardInterrupt
        return Answer("quick")

    lines = iter(["What is slow here?", "What is fast here?", "/exit"])
    echo.answer = answer
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    assert main(["chat", "--index", str(small_index), "--method", "top-k", "--reader", "echo"]) == 0
    assert "quick" in capsys.readouterr().out
