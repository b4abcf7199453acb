"""The extractive reader: real encoder, contexts written by hand; and readers that hold another."""

import pytest

import corag
from corag.errors import InputError
from corag.models.embedders import MiniLMEmbedder
from corag.readers.extractive import ExtractiveReader, sentences
from corag.registry import READERS
from corag.testing import ReaderContract
from corag.types import PromptedReader
from tests.chat_server import ChatServer, Reply
from tests.fakes import FakeReader

QUESTION = "What is the capital of Germany?"
CAPITAL = "Berlin is the capital of Germany."
OTHERS = "Bananas are yellow. The otter sleeps on its back."


class TestContract(ReaderContract):
    @pytest.fixture
    def reader(self):
        return corag.reader("extractive")


def test_answers_with_the_sentence_that_says_it():
    context = f"{OTHERS}\n\n  {CAPITAL}  \n\nIt snows."
    answer = ExtractiveReader(sentences=1).answer(QUESTION, context)
    assert answer.text == CAPITAL
    assert [context[start:end] for start, end in answer.spans] == [CAPITAL]
    assert answer.chunk == 1
    question, sentence = MiniLMEmbedder().embed([QUESTION, CAPITAL])
    assert answer.confidence == pytest.approx(float(question @ sentence), abs=1e-5)
    contexts = "今天天气好。\n我们去公园。", "标题\n我们去公园。"  # a title is no sentence
    assert [len(sentences(context)) for context in contexts] == [2, 1]


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


def test_self_consistency_is_of_readers_that_ask_a_server(monkeypatch):
    monkeypatch.setitem(READERS.parts, "own", lambda temperature, seed, tokenizer: FakeReader("so"))
    for inner in ("own", "extractive", "ollama(temperature=0)"):
        with pytest.raises(InputError, match="that asks a server"):
            corag.reader("self-consistency", reader=inner)
