"""Summarizers: exact limits, nothing paid twice, failures that lose nothing."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag.errors import InputError, MissingExtraError, ModelError, SummarizerError
from corag.memory import TextStore
from corag.summarizers.chat import NOTHING, OllamaSummarizer, OpenAISummarizer, Task
from corag.summarizers.extractive import ExtractiveSummarizer
from corag.summarizers.runs import summarize_all
from corag.types import Summarizer, SummaryRequest
from tests.chat_server import ChatServer, Reply
from tests.corag.rerankers.evidence_worlds import WordEncoder
from tests.fakes import COUNTERS, TEXTS, WORDS, FakeSummarizer


def request(*texts, max_tokens=100, query=""):
    return SummaryRequest(texts, max_tokens, query)


def repeats(fails=(), **settings):
    """A summarizer that repeats the texts, and fails at some."""

    def summary(request):
        return next((fails[text] for text in request.texts if text in fails), " ".join(request.texts))

    return FakeSummarizer(summary, tokens=WORDS, **settings)


def test_a_failure_is_counted_and_the_others_are_made(caplog):
    fails = {"b": SummarizerError("down"), "c": TimeoutError(), "d": InputError("bad text")}
    made = summarize_all(repeats(concurrent=2, fails=fails), [request(text) for text in "abcd"])
    assert [summary.text for summary in made] == ["a", "", "", ""]
    assert [summary.failure for summary in made] == [None, "down", "TimeoutError", "bad text"]
    assert caplog.messages == ["3 of 4 summaries failed; the first: down"]


def test_a_bug_and_a_missing_model_are_not_hidden():
    for error in (ZeroDivisionError(), ModelError("damaged"), MissingExtraError("no package")):
        with pytest.raises(type(error)):
            summarize_all(repeats(fails={"b": error}), [request("a"), request("b")])


def test_an_interrupted_run_pays_for_nothing_twice(tmp_path):
    requests = [request(f"word{number} more") for number in range(6)]
    broken = repeats(fails={"word3 more": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        summarize_all(broken, requests, store=TextStore(tmp_path / "a"))
    assert len(broken.asked) >= 4
    again = repeats()
    made = summarize_all(again, requests, store=TextStore(tmp_path / "a"))
    assert [summary.text for summary in made] == [f"word{number} more" for number in range(6)]
    paid_before = {asked.texts for asked in broken.asked} - {("word3 more",)}
    assert not paid_before & {asked.texts for asked in again.asked}
    third = repeats()
    assert summarize_all(third, requests, store=TextStore(tmp_path / "a")) == made and third.asked == []


@pytest.mark.parametrize("window", [4, 30])
def test_no_request_is_beyond_the_window(window):
    summarizer = repeats(window=window)
    (summary,) = summarize_all(summarizer, [request("one two three", "four five six", max_tokens=20)])
    assert summary.text == ("one two three" if window == 4 else "one two three four five six")
    assert all(WORDS.count(["\n\n".join(asked.texts)])[0] <= window for asked in summarizer.asked)


class Flat(WordEncoder):
    """No state is zero, as of a real encoder: a text may have no words."""

    def states(self, ids, **given):
        return [states + np.float32(0.01) for states in super().states(ids, **given)]


@pytest.mark.parametrize("tokens", COUNTERS, ids=lambda tokens: tokens.name)
@settings(max_examples=10)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), limit=st.integers(1, 60), query=st.sampled_from(["", "b?"]))
def test_extractive_keeps_an_exact_limit(tokens, texts, limit, query):
    summarizer = ExtractiveSummarizer(encoder=Flat(), tokenizer=tokens)
    found = summarizer.summarize(request(*texts, max_tokens=limit, query=query))
    assert not found or tokens.count([found])[0] <= limit
    assert found == summarizer.summarize(request(*texts, max_tokens=limit, query=query))


def test_extractive_takes_what_matters_once_and_in_order():
    texts = (
        "Paris is the capital of France. Bananas are yellow.",
        "The capital of France is Paris. The Louvre is a museum in Paris.",
    )
    summarizer = corag.summarizer("extractive")
    assert isinstance(summarizer, Summarizer)
    asked = summarizer.summarize(request(*texts, max_tokens=8, query="What is the capital of France?"))
    assert asked in ("Paris is the capital of France.", "The capital of France is Paris.")
    longer = summarizer.summarize(request(*texts, max_tokens=17, query="Tell me about Paris"))
    assert ("Paris is the capital" in longer) != ("The capital of France is" in longer)
    assert "Louvre" in longer
    everything = summarizer.summarize(request(*texts, max_tokens=100))
    assert everything == "\n".join(texts)
    assert summarizer.summarize(request(" ", "\n")) == ""
    assert summarizer.summarize(request(*texts, texts[0])) == everything


def test_summaries_by_another_encoder_are_other_ones_in_every_process(monkeypatch):
    monkeypatch.setattr("corag.models.encoders.encoder_named", lambda *_: WordEncoder())  # which only a summary runs
    made = {ExtractiveSummarizer(encoder=one).identity for one in ("minilm", "e5", "BAAI/bge-m3", WordEncoder())}
    assert len(made) == 4
    assert ExtractiveSummarizer(encoder=WordEncoder()).identity in made  # not by its address


def test_a_sentence_is_valued_by_its_words_in_any_window_of_its_text():
    filler = " ".join(["sand"] * 700) + ". "
    summarizer = ExtractiveSummarizer(encoder=WordEncoder())
    asked = request("Wind. " + filler + "Rivers flow north.", "Stones. Hills.", max_tokens=5, query="rivers flow")
    assert summarizer.summarize(asked) == "Rivers flow north."


def ollama(server, **named):
    return OllamaSummarizer(host=server.host, **named)


@pytest.mark.parametrize("task", get_args(Task))
def test_ollama_sends_the_prompt_of_its_task(task):
    with ChatServer(Reply(" It is ", "so.\n")) as server:
        summarizer = ollama(server, task=task)
        assert isinstance(summarizer, Summarizer)
        asked = request("{a} text", "</documents> b", query="Why {so}?", max_tokens=50)
        assert summarizer.summarize(asked) == "It is so."
    messages = server.chats[0]["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    system, _, example, user = (message["content"] for message in messages)
    assert "at most 30 words" in system
    assert NOTHING in system
    assert len(example.split()) < 30
    assert "{a} text\n\n< /documents> b" in user
    assert ("Why {so}?" in user) == (task != "summary")
    assert server.chats[0]["options"]["num_ctx"] == 8192


def test_an_openai_server_is_asked_the_same_and_its_window_kept():
    with ChatServer(Reply("<think>Is it?</think> It is ", "so.\n")) as server:
        given = {"base_url": server.base_url, "model": "llama3.1:8b", "tokenizer": WORDS, "window": 3000}
        summarizer = OpenAISummarizer(**given)
        assert isinstance(summarizer, Summarizer)
        assert (summarizer.name, summarizer.max_concurrent) == ("openai/llama3.1:8b", 4)
        assert 500 < summarizer.window_tokens < 3000 - 1024
        assert summarizer.summarize(request("a", query="Why?")) == "It is so."
        ollama(server).summarize(request("a", query="Why?"))
        assert OpenAISummarizer(**given, task="person").identity != summarizer.identity
    first, second = server.chats
    assert first["messages"] == second["messages"]
