"""Conversations: a language model makes each question stand alone, and is asked it within the budget."""

import io

import pytest

from corag.cli.main import main
from corag.conversation import Conversation
from corag.errors import InputError
from corag.readers.chat import OllamaReader
from tests.chat_server import ChatServer
from tests.chat_server import Reply as Sent

TEXTS = ["Lake Sable is 310 metres deep.", "The Oro ends in Lake Sable.", "The mill burned in 1830."]
SETTINGS = {"method": "top-k(k=2)"}


def contents(chat):
    return [message["content"] for message in chat["messages"]]


def test_a_language_model_makes_a_question_stand_alone():
    replies = [Sent("310 metres"), Sent("<think>it</think> Which river ends in Lake Sable?"), Sent("The Oro")]
    with ChatServer(*replies) as server:
        reader = OllamaReader(host=server.host)
        talk = Conversation(TEXTS, reader=reader, budget_tokens=2000, **SETTINGS)
        talk.ask("How deep is Lake Sable?")
        reply = talk.ask("Which river ends there?")
        first, rewrite, second = server.chats
    assert reply.question == "Which river ends in Lake Sable?" and reply.answer.text == "The Oro"
    assert [turn.question for turn in talk.turns] == ["How deep is Lake Sable?", "Which river ends there?"]
    assert "Question: How deep is Lake Sable?\nAnswer: 310 metres" in contents(rewrite)[1]
    assert "Last question: Which river ends there?" in contents(rewrite)[1]
    assert len(contents(first)) == len(contents(second)) == 2
    assert "Question: Which river ends in Lake Sable?" in contents(second)[1]
    assert reply.counts.prompt_tokens == reader.prompt_tokens(reply.question, reply.selection.text) <= 2000


def test_a_reply_that_is_empty_or_cut_leaves_the_question_as_it_is():
    for rewritten in (Sent(""), Sent("Which river", done_reason="length")):
        with ChatServer(Sent("310 metres"), rewritten, Sent("The Oro")) as server:
            talk = Conversation(TEXTS, reader=OllamaReader(host=server.host), budget_tokens=2000, **SETTINGS)
            talk.ask("How deep is Lake Sable?")
            assert talk.ask("Which river ends there?").question == "Which river ends there?"


@pytest.mark.parametrize("reader", [None, "extractive"])
def test_without_a_language_model_there_is_no_conversation(reader, small_index, capsys):
    with pytest.raises(InputError, match="language model"):
        Conversation(TEXTS, reader=reader)
    given = [] if reader is None else ["--reader", reader]
    assert main(["chat", "--index", str(small_index), *given]) != 0
    said = capsys.readouterr().err.strip()
    assert "language model" in said and "\n" not in said


def test_questions_from_a_pipe(small_index, monkeypatch, capsys):
    typed = "How deep is Lake Sable?\n\n  Where is it?  \n/sources\n/exit\nnever asked\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    with ChatServer(Sent("310 metres [1]"), Sent("Where is Lake Sable?"), Sent("In Varn [9]")) as server:
        reader = f"ollama(host={server.host})"
        assert main(["chat", "--index", str(small_index), "--method", "top-k(k=2)", "--reader", reader]) == 0
        assert len(server.chats) == 3
    said = capsys.readouterr()
    assert "310 metres [1]" in said.out and "asked as: Where is Lake Sable?" in said.out
    assert "Cited but not in the context: [9]" in said.out and "error" not in said.err
