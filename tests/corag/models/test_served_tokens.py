"""Token counts by the tokenizers of servers."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from corag.errors import InputError, ReaderError
from corag.models.chat.served_tokens import ServerTokens, counting_server, ollama_tokens
from tests.corag.text.tokens.test_gguf import fields_of_byte_level
from tests.corag.text.tokens.worlds import PROSE, byte_level


@contextmanager
def serving(answer):
    """Serve what `answer(path, question, headers)` returns: a status with JSON or bytes; yield address and requests."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, question))
            status, content = answer(self.path, question, self.headers)
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if status in (301, 302, 307, 308):
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def show(path, question, headers):
    """Answer as Ollama does: the lists of the vocabulary are null unless they are asked for."""
    fields = fields_of_byte_level()
    if not question.get("verbose"):
        fields = {name: None if isinstance(value, list) else value for name, value in fields.items()}
    return 200, {"model_info": {"general.architecture": "llama", **fields}, "details": {}}


def tokenize(kind):
    """Answer as vLLM or llama.cpp does."""

    def answer(path, question, headers):
        if path != "/tokenize":
            return 404, {"error": "not found"}
        tokens = byte_level()._tokenizer.encode(question["prompt" if kind == "vllm" else "content"]).ids
        return 200, {"count": len(tokens), "max_model_len": 4096, "tokens": tokens} if kind == "vllm" else {
            "tokens": tokens
        }

    return answer


def test_ollama_tells_the_vocabulary_of_a_model():
    with serving(show) as (address, asked):
        counter = ollama_tokens(address, "mine:8b")
    assert asked == [("/api/show", {"model": "mine:8b", "verbose": True})]
    assert (counter.name, counter.exact) == ("ollama's mine:8b", True)
    assert counter.count(PROSE).tolist() == byte_level().count(PROSE).tolist()


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (404, {"error": "model 'mine:8b' not found"}),
        (200, b"no JSON"),
        (200, b"[]"),
        (200, {"model_info": None}),
        (200, {"model_info": {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": None}}),
        (200, {"model_info": fields_of_byte_level("a rule of next year")}),
        (200, {"model_info": fields_of_byte_level(merges=["x y z", 7])}),
        (302, b""),
        (500, b""),
    ],
    ids=["404", "text", "list", "null", "brief", "rule", "damaged", "redirect", "500"],
)
def test_a_server_without_a_vocabulary_is_none(status, content):
    with serving(lambda *_: (status, content)) as (address, _):
        assert ollama_tokens(address, "mine:8b") is None


def test_no_server_is_none():
    assert ollama_tokens("http://127.0.0.1:1", "mine:8b") is None
    assert counting_server("http://127.0.0.1:1/v1", "mine") is None
    assert counting_server("nonsense", "mine") is None


def test_more_than_a_vocabulary_can_have_is_none(monkeypatch):
    monkeypatch.setattr("corag.models.chat.served_tokens._MAX_BYTES", 1000)
    with serving(show) as (address, _):
        assert ollama_tokens(address, "mine:8b") is None


@pytest.mark.parametrize("kind", ["vllm", "llama.cpp"])
@pytest.mark.parametrize("path", ["/v1", "/v1/", ""])
def test_vllm_and_llama_cpp_count_each_text_once(kind, path):
    with serving(tokenize(kind)) as (address, asked):
        counter = counting_server(address + path, "mine")
        assert counter.exact
        del asked[:]
        for _ in range(2):
            assert counter.count([*PROSE, "", PROSE[0]]).tolist() == byte_level().count([*PROSE, "", PROSE[0]]).tolist()
    assert len(asked) == len(PROSE)
    assert {(question["add_special_tokens"], question["add_special"]) for _, question in asked} == {(False, False)}


def test_the_key_goes_along():
    def answer(path, question, headers):
        return (200, {"tokens": [1]}) if headers["Authorization"] == "Bearer sesame" else (401, {})

    with serving(answer) as (address, _):
        assert counting_server(f"{address}/v1", "mine") is None
        assert counting_server(f"{address}/v1", "mine", "sesame").count(["a b"]).tolist() == [1]


@pytest.mark.parametrize("content", [{"detail": "Not Found"}, {"tokens": []}, {"tokens": 3}, b"<html>", [1, 2]])
def test_a_server_that_does_not_count_is_none(content):
    with serving(lambda *_: (200, content)) as (address, _):
        assert counting_server(f"{address}/v1", "mine") is None


def test_a_server_that_stops_counting_is_a_clear_error():
    with serving(tokenize("vllm")) as (address, _):
        counter = counting_server(f"{address}/v1", "mine")
    with pytest.raises(ReaderError, match=r"/tokenize did not count .* --tokenizer"):
        counter.count(["something else"])


def test_what_is_no_unicode_text_is_refused():
    with pytest.raises(InputError, match="valid Unicode"):
        ServerTokens("http://127.0.0.1:1/v1", "mine").count(["broken \ud83d pair"])
