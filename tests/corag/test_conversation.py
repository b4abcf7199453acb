"""Conversations: a language model makes each question stand alone, and is asked it within the budget."""

import io

import pytest

from corag.cli.main import main
from corag.readers.chat import OllamaReader
from tests.chat_server import ChatServer
from tests.chat_server import Reply as Sent

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
    assert "Cited but not in the context: [9]" in said.out and "error" not in said.err
