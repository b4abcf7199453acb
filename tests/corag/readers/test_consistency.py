"""Several answers of one model, over real HTTP."""

import pytest

import corag
from corag.errors import InputError
from corag.types import PromptedReader
from tests.chat_server import ChatServer, Reply


def reader_of(server, **settings):
    return corag.reader(f"self-consistency(reader=ollama(host={server.host}, max_concurrent=1))", **settings)


def test_the_most_frequent_answer_counts():
    replies = [Reply(text) for text in ("Paris", "Lyon", "The Paris!", "Nice", "paris")]
    with ChatServer(*replies) as server:
        reader = reader_of(server, samples=5)
        answer = reader.answer("Which city?", "Paris is a city.")
    assert isinstance(reader, PromptedReader)
    assert (answer.text, answer.confidence) == ("Paris", 3 / 5)
    options = [chat["options"] for chat in server.chats]
    assert [one["seed"] for one in options] == [0, 1, 2, 3, 4]
    assert {one["temperature"] for one in options} == {0.7}


def test_equally_frequent_answers_and_no_answer():
    with ChatServer(Reply("a b"), Reply("c"), Reply("I don't know"), Reply("I don't know"), Reply("c")) as server:
        reader = reader_of(server, samples=2, temperature=1)
        assert reader.answer("q?", "x").text == "a b"
        assert reader.answer("q?", "x").text == ""
        assert reader.answer("q?", "x").text == "c"
    assert {chat["options"]["temperature"] for chat in server.chats} == {1}


def test_many_questions_keep_their_answers():
    with ChatServer(*map(Reply, ("a", "b", "a", "c", "d", "c"))) as server:
        found = reader_of(server, samples=3).answer_many(["one?", "two?"], ["x", "y"])
    # The first model is asked all questions, then the next one.
    assert [answer.text for answer in found] == ["a", "c"]
    with ChatServer(*map(Reply, ("a", "b", "a", "b", "d", "c"))) as server:
        found = reader_of(server, samples=3).answer_many(["one?", "two?"], ["x", "y"])
    assert [(answer.text, answer.confidence) for answer in found] == [("a", 2 / 3), ("b", 2 / 3)]


def test_settings_of_the_reader_are_kept_and_it_prints_as_it_is_written():
    with ChatServer(Reply("a")) as server:
        written = f"self-consistency(reader=ollama(host={server.host}, temperature=0.2, seed=7), samples=2)"
        reader = corag.reader(written)
        reader.answer("q?", "x")
        assert str(reader) == written
        assert reader.name == "self-consistency/ollama/llama3.1:8b"
        assert reader.prompt_tokens("q?", "x") == corag.reader(f"ollama(host={server.host})").prompt_tokens("q?", "x")
    assert [chat["options"]["seed"] for chat in server.chats] == [7, 8]
    assert {chat["options"]["temperature"] for chat in server.chats} == {0.2}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reader": "extractive"}, "reader 'extractive' takes no temperature and seed, so its answers are all alike"),
        ({"reader": "transformers(model=x)"}, "takes no temperature"),
        ({"reader": "ollama", "samples": 0}, "samples must be a whole number of at least 1, got 0"),
        ({"reader": "ollama", "temperature": 0}, "temperature must be above 0, got 0"),
        ({"reader": "ollama", "temperature": "hot"}, "temperature is .hot.; it must be a number"),
        ({"reader": "ollama(seed=x)"}, "seed must be a whole number"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(InputError, match=message):
        corag.reader("self-consistency", **settings)
