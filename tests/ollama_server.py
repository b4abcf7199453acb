"""A small server that speaks Ollama's wire format over real HTTP, with faults on request.

    with OllamaServer(Reply(status=500), Reply("Par", "is")) as server:
        OllamaReader(host=server.host).answer(...)

It answers `/api/chat` with one `Reply` after the other, the last one again and again, and keeps every
request. `/api/tags` and `/api/show` know the models it was given; any other model is a 404.
With `model_info=None` it leaves that field out, as servers do for some models.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Ending = Literal["done", "nothing", "drop", "half a line", "error", "hang"]

MODEL_INFO = {"general.architecture": "llama", "llama.context_length": 131072}


class Reply:
    """What the server does with one chat request.

    Args:
        pieces: Texts of the streamed parts; joined when the request asks for no stream.
        status: HTTP status; anything but 200 sends `error` alone.
        error: Text of the error, for a status or for the ending "error".
        delay_s: Seconds before the first byte.
        ending: What follows the pieces: the last line ("done"), a clean end without it ("nothing"), a
            dropped connection ("drop"), half of a line ("half a line"), a line with an error ("error"), or
            silence until the server stops ("hang").
        done_reason: Stands in the last line.
        body: Sent as it is instead of all this.
        write_bytes: Bytes a write; small ones split lines and characters.
        log_probabilities: Of the pieces, each one token, sent where the request asks for them.
    """

    def __init__(
        self,
        *pieces: str,
        status: int = 200,
        error: str = "something went wrong",
        delay_s: float = 0.0,
        ending: Ending = "done",
        done_reason: str = "stop",
        body: bytes | None = None,
        write_bytes: int = 65536,
        log_probabilities: tuple[float, ...] = (),
    ) -> None:
        self.pieces = pieces
        self.status = status
        self.error = error
        self.delay_s = delay_s
        self.ending = ending
        self.done_reason = done_reason
        self.body = body
        self.write_bytes = write_bytes
        self.log_probabilities = log_probabilities

    def lines(self, model: str, stream: bool, scored: bool = False) -> Iterator[bytes]:
        if self.body is not None:
            yield self.body
            return
        if self.status != 200:
            yield _line({"error": self.error})
            return
        last = {"model": model, "done": True, "done_reason": self.done_reason, "eval_count": len(self.pieces)}
        tokens = zip(self.pieces, self.log_probabilities, strict=False) if scored else ()
        scores = [{"token": piece, "logprob": value} for piece, value in tokens]
        if not stream:
            yield _line(last | {"message": _message("".join(self.pieces))} | ({"logprobs": scores} if scores else {}))
            return
        for place, piece in enumerate(self.pieces):
            own = {"logprobs": scores[place : place + 1]} if scores else {}
            yield _line({"model": model, "done": False, "message": _message(piece)} | own)
        end = _line(last | {"message": _message("")})
        yield {"done": end, "half a line": end[: len(end) // 2], "error": _line({"error": self.error})}.get(
            self.ending, b""
        )


class OllamaServer:
    """Serves on a free port of 127.0.0.1 while its `with` block runs."""

    def __init__(
        self,
        *replies: Reply,
        models: tuple[str, ...] = ("llama3.1:8b",),
        model_info: dict[str, Any] | None = MODEL_INFO,
    ) -> None:
        self.models = models
        self.show = {} if model_info is None else {"model_info": model_info}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.stopping = threading.Event()
        self._replies = list(replies)
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = False
        self._http.ollama = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def host(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def chats(self) -> list[dict[str, Any]]:
        """Bodies of the chat requests so far."""
        return [body for path, body in self.requests if path == "/api/chat"]

    def next_reply(self) -> Reply:
        with self._lock:
            return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]

    def __enter__(self) -> OllamaServer:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 2.0  # ends connections that a client keeps open

    def do_GET(self) -> None:
        self.server.ollama.requests.append((self.path, {}))
        models = [{"name": name, "model": name} for name in self.server.ollama.models]
        self._send(200, _line({"models": models})) if self.path == "/api/tags" else self._send_404()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ollama = self.server.ollama
        ollama.requests.append((self.path, body))
        if self.path not in ("/api/chat", "/api/show"):
            self._send_404()
        elif body["model"] not in ollama.models:
            self._send(404, _line({"error": f"model '{body['model']}' not found"}))
        elif self.path == "/api/show":
            self._send(200, _line({"details": {"family": "llama"}} | self.server.ollama.show))
        else:
            with contextlib.suppress(ConnectionError):  # a client that has given up
                self._chat(ollama, ollama.next_reply(), body)

    def _chat(self, ollama: OllamaServer, reply: Reply, body: dict[str, Any]) -> None:
        ollama.stopping.wait(reply.delay_s)
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in reply.lines(body["model"], body["stream"], body.get("logprobs", False)):
            for start in range(0, len(line), reply.write_bytes):
                chunk = line[start : start + reply.write_bytes]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        if reply.ending == "hang":
            ollama.stopping.wait()
        if reply.ending in ("drop", "hang"):
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_404(self) -> None:
        self._send(404, b"404 page not found")

    def log_message(self, *args: object) -> None:
        """Stay silent."""


def _line(value: dict[str, Any]) -> bytes:
    # Go's encoder, which Ollama uses, escapes these two line separators and no other.
    text = json.dumps(value, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return text.encode() + b"\n"


def _message(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}
