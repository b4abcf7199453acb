"""The extractive reader: real encoder, contexts written by hand; and readers that hold another."""

import pytest

import corag
from corag.models.embedders import MiniLMEmbedder
from corag.readers.extractive import ExtractiveReader
from corag.readers.wrappers import CachedReader
from corag.testing import ReaderContract
from corag.types import Answer, PromptedReader, Reader
from tests.chat_server import ChatServer, Reply
from tests.fakes import FakeReader

QUESTION = "What is the capital of Germany?"
CAPITAL = "Berlin is the capital of Germany."
OTHERS = "Bananas are yellow. The otter sleeps on its back."


class TestContract(ReaderContract):
    @pytest.fixture
    def reader(self):
        return corag.reader("extractive")


def quoted(answer, context):
    return [context[start:end] for start, end in answer.spans]


def test_answers_with_the_sentence_that_says_it():
    context = f"{OTHERS}\n\n  {CAPITAL}  \n\nIt snows."
    answer = ExtractiveReader(sentences=1).answer(QUESTION, context)
    assert answer.text == CAPITAL
    assert quoted(answer, context) == [CAPITAL]
    assert answer.chunk == 1
    question, sentence = MiniLMEmbedder().embed([QUESTION, CAPITAL])
    assert answer.confidence == pytest.approx(float(question @ sentence), abs=1e-5)


def test_the_most_frequent_answer_counts():
    replies = [Reply(text) for text in ("Paris", "Lyon", "The Paris!", "Nice", "paris")]
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
    echo = FakeReader(lambda query, context: Answer(f"{query} {context}"), "echo")
    reader = CachedReader(echo)
    assert isinstance(reader, Reader) and reader.name == "echo"
    found = reader.answer_many(["q", "q", "p", "q"], ["a", "b", "a", "a"])
    assert [answer.text for answer in found] == ["q a", "q b", "p a", "q a"]
    assert reader.answer("q", "b").text == "q b"
    assert echo.asked == [("q", "a"), ("q", "b"), ("p", "a")]
    assert reader.answer_many([], []) == []
