"""Readers that ask a server, over real HTTP in both protocols: whole answers, or one clear error."""

import json
import re
from multiprocessing.pool import ThreadPool

import pytest

from corag.errors import InputError, ReaderError
from corag.models.chat import ChatError
from corag.readers.chat import NO_ANSWER, OllamaReader, OpenAIReader
from corag.types import Answer
from tests.chat_server import ChatServer, Reply

QUERY = "What is the capital of France?"
CONTEXT = "France\nThe capital of France is Paris."
MODEL = "llama3.1:8b"


def ollama_reader(server, **settings):
    return OllamaReader(host=server.host, **settings)


def openai_reader(server, **settings):
    return OpenAIReader(**{"base_url": server.base_url, "model": MODEL, "retries": 0, **settings})


@pytest.fixture(params=[ollama_reader, openai_reader], ids=["ollama", "openai"])
def reader_for(request):
    return request.param


def failure(reader):
    with pytest.raises(ChatError) as caught:
        reader.answer(QUERY, CONTEXT)
    assert isinstance(caught.value, ReaderError)
    assert "\n" not in str(caught.value) and MODEL in str(caught.value)
    return str(caught.value)


def test_a_reply_becomes_the_answer_with_one_request(reader_for):
    with ChatServer(Reply(" Par", "is", "\n", usage=(50, 3))) as server:
        reader = reader_for(server)
        assert reader.name in (f"ollama/{MODEL}", f"openai/{MODEL}")
        answer = reader.answer(QUERY, CONTEXT)
    assert answer == Answer("Paris")
    assert (answer.prompt_tokens, answer.answer_tokens, answer.cut) == (50, 3, False)
    assert len(server.chats) == 1


def test_a_server_on_this_machine_is_asked_without_the_proxy(reader_for, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with ChatServer(Reply("Paris")) as server:
        assert reader_for(server).answer(QUERY, CONTEXT).text == "Paris"


def test_the_request_holds_model_messages_and_options():
    given = {"model": "tiny", "temperature": 0.5, "seed": 7, "max_answer_tokens": 100}
    with ChatServer(Reply("Paris"), models=("tiny",)) as server:
        ollama_reader(server, num_ctx=2000, **given).answer(QUERY, CONTEXT)
        openai_reader(server, **given).answer(QUERY, CONTEXT)
    assert "/api/show" not in [path for path, _ in server.requests]  # the window is known
    of_ollama, of_openai = server.chats
    assert of_ollama["options"] == {"temperature": 0.5, "seed": 7, "num_ctx": 2000, "num_predict": 100}
    assert (of_openai["temperature"], of_openai["seed"], of_openai["max_tokens"]) == (0.5, 7, 100)
    for body in (of_ollama, of_openai):
        assert (body["model"], body["stream"]) == ("tiny", True)
        system, user = body["messages"]
        assert system["role"] == "system" and NO_ANSWER in system["content"]
        assert user == {"role": "user", "content": f"<context>\n{CONTEXT}\n</context>\n\nQuestion: {QUERY}"}


def test_what_counts_as_an_answer():
    replies = {
        NO_ANSWER: "", "i don't know.": "", " I don\u2019t know.\n": "", "": "", "<think>?</think> ": "",
        "I don't know, but Paris is likely": "I don't know, but Paris is likely",
        "<think>\nLyon?\n</think>\n\nParis": "Paris", "Lyon?\n</think>\nParis": "Paris",
        "A tag <think>, and </think>": "A tag <think>, and </think>",
    }  # fmt: skip
    with ChatServer(*map(Reply, replies)) as server:
        reader = ollama_reader(server)
        assert [reader.answer(QUERY, CONTEXT).text for _ in replies] == list(replies.values())


def test_the_environment_names_the_server(monkeypatch):
    with ChatServer(Reply("Paris")) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.host.removeprefix("http://"))
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        assert OllamaReader().answer(QUERY, CONTEXT).text == "Paris"
        assert OpenAIReader(model=MODEL).answer(QUERY, CONTEXT).text == "Paris"
    assert server.headers[-1]["authorization"] == "Bearer sk-secret"
    assert OllamaReader(host="somewhere").address == "http://somewhere:11434"
    assert OllamaReader(host="https://somewhere").address == "https://somewhere"


def test_many_are_answered_in_order_with_a_bound(reader_for):
    with ChatServer(Reply("Paris", delay_s=0.02), gate=3) as server:
        reader = reader_for(server, max_concurrent=3)
        contexts = [f"Part {number}." for number in range(9)]
        assert [answer.text for answer in reader.answer_many([QUERY] * 9, contexts)] == ["Paris"] * 9
        assert reader.answer_many([], []) == []
        assert server.most_at_once == 3
    texts = sorted(body["messages"][1]["content"] for body in server.chats)
    assert [text.split("\n")[1] for text in texts] == contexts
    with ChatServer(*(Reply(str(number)) for number in range(5))) as server:
        answers = reader_for(server, max_concurrent=1).answer_many([QUERY] * 5, [CONTEXT] * 5)
    assert [answer.text for answer in answers] == list("01234")


def test_two_questions_take_two_threads(monkeypatch):
    pools = []
    monkeypatch.setattr("corag.models.chat.ThreadPool", lambda size: pools.append(size) or ThreadPool(size))
    with ChatServer(Reply("Paris")) as server:
        ollama_reader(server, max_concurrent=1000).answer_many([QUERY] * 2, [CONTEXT] * 2)
    assert pools == [2]


def test_the_first_failure_ends_all(reader_for):
    with ChatServer(Reply(status=500, delay_s=0.05)) as server, pytest.raises(ChatError):
        reader_for(server, max_concurrent=2).answer_many([QUERY] * 40, [CONTEXT] * 40)
    assert len(server.chats) < 40


FAULTS = {
    "429": (Reply(status=429, error="too many"), "429.*too many"),
    "no last line": (Reply("Par", ending="nothing"), "no whole answer"),
    "error in the stream": (Reply("Par", ending="error", error="CUDA error"), "CUDA error"),
    "no JSON": (Reply(body=b"data: hello\n\n"), "no whole answer"),
    "silence": (Reply("Paris", delay_s=60), "timeout_s"),
    "window full": (Reply("Par", done_reason="length", usage=(9, 2)), "window"),
    "filtered": (Reply("Par", done_reason="content_filter"), "filter"),
    "broken off": (Reply("Par", done_reason="abort"), "broke it off"),
    "nothing": (Reply(" ", done_reason="length"), "max_answer_tokens"),
    "all thought": (Reply("<think>Lyon?", done_reason="length"), "max_answer_tokens"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_clear_error(reader_for, fault):
    reply, says = FAULTS[fault]
    if fault in ("filtered", "broken off") and reader_for is ollama_reader:
        pytest.skip("Ollama has no such reason")
    with ChatServer(reply, Reply("Paris")) as server:
        reader = reader_for(server, timeout_s=0.3, max_answer_tokens=20)
        error = failure(reader)
        assert reader.answer(QUERY, CONTEXT).text == "Paris"
    assert re.search(says, error) and server.host in error


def test_the_openai_client_tries_again():
    busy = [Reply(status=429, headers={"Retry-After-Ms": "5"}), Reply(status=500, headers={"Retry-After-Ms": "5"})]
    with ChatServer(*busy, Reply("Paris")) as server:
        assert openai_reader(server, retries=2).answer(QUERY, CONTEXT).text == "Paris"
    assert len(server.chats) == 3


def test_a_stream_yields_pieces_breaks_with_an_error_and_hangs_up_when_closed(reader_for):
    with ChatServer(Reply("Par", "i", ending="drop"), Reply("Par", ending="hang")) as server:
        pieces = reader_for(server).stream(QUERY, CONTEXT)
        assert [next(pieces), next(pieces)] == ["Par", "i"]
        with pytest.raises(ChatError):
            next(pieces)
        pieces = reader_for(server).stream(QUERY, CONTEXT)
        assert next(pieces) == "Par"
        pieces.close()
    with ChatServer(Reply("", "Par", "is")) as server:
        pieces = reader_for(server).stream(QUERY, CONTEXT)
        assert [next(pieces), next(pieces)] == ["Par", "is"]
        with pytest.raises(StopIteration) as end:
            next(pieces)
        assert end.value.value == Answer("Paris")


def test_what_a_server_leaves_out_or_sends_in_parts_does_no_harm():
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Lyon?"}]}, {"type": "text", "text": "Par"}]
    last = {"delta": {"content": "is"}, "finish_reason": "stop"}
    choices = [{}, {"delta": None}, {"delta": {"content": parts}}, last]
    usage = {"choices": None, "usage": {"prompt_tokens": None}}
    events = [{"id": "1"}, *({"choices": [choice]} for choice in choices), usage]
    body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    with ChatServer(Reply(body=body)) as server:
        answer = openai_reader(server).answer(QUERY, CONTEXT)
    assert answer == Answer("Paris") and answer.prompt_tokens is None


def test_ollamas_window_grows_with_the_prompt_and_up_to_the_models():
    with ChatServer(Reply("Paris"), model_info={"llama.context_length": 20000}) as server:
        reader = ollama_reader(server, tokenizer="minilm")
        for words in (10, 3000, 10, 5500):
            reader.answer(QUERY, "ab " * words)
        assert [body["options"]["num_ctx"] for body in server.chats] == [4096, 4096, 4096, 8192]
        assert reader.window_tokens == 20000
        with pytest.raises(InputError, match="20000"):
            reader.answer(QUERY, "ab " * 100000)
        assert len(server.chats) == 4
    assert [path for path, _ in server.requests].count("/api/show") == 1


@pytest.mark.parametrize(("refuses", "kept"), [(["seed"], "max_tokens"), (["temperature"], "max_completion_tokens")])
def test_a_server_is_asked_again_without_what_it_refuses(refuses, kept):
    with ChatServer(Reply("Paris"), refuses=refuses) as server:
        reader = openai_reader(server)
        assert [reader.answer(QUERY, CONTEXT).text for _ in range(2)] == ["Paris"] * 2
    assert server.chats[-1][kept] == reader.max_answer_tokens and refuses[0] not in server.chats[-1]
    assert refuses[0] in server.chats[-3] and refuses[0] not in server.chats[-2]
