"""Readers that hold another: one with a cache, and several answers of one model, over real HTTP."""

import corag
from corag.readers.wrappers import CachedReader
from corag.types import PromptedReader, Reader
from tests.chat_server import ChatServer
from tests.chat_server import Reply as Sent
from tests.fakes import EchoReader


def test_the_most_frequent_answer_counts():
    replies = [Sent(text) for text in ("Paris", "Lyon", "The Paris!", "Nice", "paris")]
    with ChatServer(*replies) as server:
        inner = f"ollama(host={server.host}, max_concurrent=1)"
        reader = corag.reader("self-consistency", reader=inner, samples=5)
        answer = reader.answer("Which city?", "Paris is a city.")
    assert isinstance(reader, PromptedReader)
    assert (answer.text, answer.confidence) == ("Paris", 3 / 5)
    options = [chat["options"] for chat in server.chats]
    assert [one["seed"] for one in options] == [0, 1, 2, 3, 4]
    assert {one["temperature"] for one in options} == {0.7}


def test_each_context_is_read_once_for_each_question():
    echo = EchoReader()
    reader = CachedReader(echo)
    assert isinstance(reader, Reader) and reader.name == "echo"
    found = reader.answer_many(["q", "q", "p", "q"], ["a", "b", "a", "a"])
    assert [answer.text for answer in found] == ["q a", "q b", "p a", "q a"]
    assert reader.answer("q", "b").text == "q b"
    assert echo.asked == [("q", "a"), ("q", "b"), ("p", "a")]
    assert reader.answer_many([], []) == []
