"""A small server that speaks the wire formats of Ollama and of OpenAI over real HTTP, with faults on request.

    with ChatServer(Reply(status=500), Reply("Par", "is")) as server:
        OllamaReader(host=server.host).answer(...)
        OpenAIReader(base_url=server.base_url, model="llama3.1:8b").answer(...)

It answers `/api/chat` and `/v1/chat/completions` with one `Reply` after the other, the last one again and again, and
keeps every request. `/api/show` and `/v1/models` know the models it was given; any other model is a 404.
"""

import contextlib
import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL_INFO = {"general.architecture": "llama", "llama.context_length": 131072}

CHATS = ("/api/chat", "/v1/chat/completions")


class Reply:
    """What the server does with one chat request: sends pieces of a text, or an error for a `status` besides 200.

    Args:
        ending: What follows the pieces: the last line ("done"), a clean end without it ("nothing"), a dropped
            connection ("drop"), a line with an error ("error"), or silence until the server stops ("hang").
        body: Sent as it is instead of all this.
        log_probabilities: Of the pieces, each one token, sent where the request asks for them.
        alternatives: Log-probabilities of what each piece might have been, likewise, by `top_logprobs`.
        usage: Tokens of prompt and reply, as the last line tells them.
    """

    def __init__(
        self,
        *pieces,
        status=200,
        error="something went wrong",
        delay_s=0.0,
        ending="done",
        done_reason="stop",
        body=None,
        headers=None,
        log_probabilities=(),
        alternatives=None,
        usage=None,
    ):
        self.pieces, self.status, self.error, self.body = pieces, status, error, body
        self.delay_s, self.ending, self.done_reason, self.headers = delay_s, ending, done_reason, headers or {}
        self.log_probabilities, self.usage = log_probabilities, usage
        self.alternatives = [{"token": token, "logprob": value} for token, value in (alternatives or {}).items()]

    def chunks(self, path, request):
        """Return the bytes of the reply, a write each."""
        if self.body is not None:
            yield self.body
        elif self.status != 200:
            yield _line({"error": self.error if path == "/api/chat" else {"message": self.error}})
        else:
            yield from self._ollama(request) if path == "/api/chat" else self._openai(request)

    def _ollama(self, request):
        model = request["model"]
        for piece, scores in self._scored(request):
            own = {"logprobs": scores} if scores else {}
            yield _line({"model": model, "done": False, "message": _message(piece)} | own)
        counts = dict(zip(("prompt_eval_count", "eval_count"), self.usage or (), strict=False))
        end = _line({"model": model, "done": True, "done_reason": self.done_reason, "message": _message("")} | counts)
        error = _line({"error": self.error})
        yield {"done": end, "error": error}.get(self.ending, b"")

    def _openai(self, request):
        yield _event([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
        for piece, scores in self._scored(request):
            told = {"content": scores} if scores else None
            yield _event([{"index": 0, "delta": {"content": piece}, "logprobs": told, "finish_reason": None}])
        end = _event([{"index": 0, "delta": {}, "finish_reason": self.done_reason}])
        counts = zip(("prompt_tokens", "completion_tokens"), self.usage or (), strict=False)
        usage = _event([], usage=dict(counts)) if self.usage and request.get("stream_options") else b""
        error = b"data: " + _line({"error": {"message": self.error}}) + b"\n"
        whole = end + usage + b"data: [DONE]\n\n"
        yield {"done": whole, "error": error}.get(self.ending, b"")

    def _scored(self, request):
        """Yield the pieces, each with its log-probability if it is asked for."""
        scores = self.log_probabilities if request.get("logprobs") else ()
        more = {"top_logprobs": self.alternatives[: request.get("top_logprobs") or 0]}
        for number, piece in enumerate(self.pieces):
            yield piece, [{"token": piece, "logprob": value} | more for value in scores[number : number + 1]]


def weighing(request):
    """Return a reply of yes, with a probability that depends on the last message, its order included."""
    prompt = request["messages"][-1]["content"]
    share = (sum(number * ord(character) for number, character in enumerate(prompt)) % 97 + 1) / 100
    return Reply("yes", log_probabilities=[0.0], alternatives={"yes": math.log(share), "no": math.log(1 - share)})


class ChatServer:
    """Serves on a free port of 127.0.0.1 while its `with` block runs.

    Args:
        replies: One for each request, or a function that returns the reply to a request.
        models: Names that it knows.
        model_info: What `/api/show` says of them.
        refuses: Fields of a request to `/v1/chat/completions` that are an error.
        gate: No chat is answered until so many are under way at the same time, once; a minute is too long to wait.
    """

    def __init__(self, *replies, models=("llama3.1:8b",), model_info=MODEL_INFO, refuses=(), gate=0):
        self.models, self.refuses = models, refuses
        self.show = {"model_info": model_info}
        self.requests = []
        self.headers = []
        self.most_at_once = 0
        self.stopping = threading.Event()
        self._now, self._gate, self._open = 0, gate, threading.Event()
        self._replies = list(replies)
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = False
        self._http.chat = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def port(self):
        return self._http.server_port

    @property
    def host(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self):
        return f"{self.host}/v1"

    @property
    def chats(self):
        """Bodies of the chat requests so far."""
        return [body for path, body in self.requests if path in CHATS]

    def next_reply(self, request):
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            if self._now >= self._gate:
                self._open.set()
            reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
            reply = reply(request) if callable(reply) else reply
        self._open.wait(60)
        self.stopping.wait(reply.delay_s)
        # Before anything is sent: with the last byte the client may begin another request.
        with self._lock:
            self._now -= 1
        return reply

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        self.stopping.set()
        self._open.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 2.0  # ends connections that a client keeps open

    @property
    def chat(self):
        return self.server.chat

    def do_GET(self):
        self.chat.requests.append((self.path, {}))
        if self.path != "/v1/models":
            self._send_404()
        else:
            self._send(200, {"object": "list", "data": [{"id": name} for name in self.chat.models]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.chat.requests.append((self.path, body))
        self.chat.headers.append({name.lower(): value for name, value in self.headers.items()})
        refused = [name for name in self.chat.refuses if name in body and self.path.startswith("/v1")]
        if self.path not in (*CHATS, "/api/show"):
            self._send_404()
        elif body["model"] not in self.chat.models:
            self._send(404, {"error": f"model '{body['model']}' not found"})
        elif self.path == "/api/show":
            self._send(200, {"details": {"family": "llama"}} | self.chat.show)
        elif refused:
            self._send(400, {"error": {"message": f"Unsupported parameter: '{refused[0]}'"}})
        else:
            # A client that has given up closes the connection.
            with contextlib.suppress(ConnectionError):
                self._reply(self.chat.next_reply(body), body)

    def _reply(self, reply, body):
        self.send_response(reply.status)
        kind = "application/x-ndjson" if self.path == "/api/chat" else "text/event-stream"
        for name, value in ({"Content-Type": kind, "Transfer-Encoding": "chunked"} | reply.headers).items():
            self.send_header(name, value)
        self.end_headers()
        for chunk in filter(None, reply.chunks(self.path, body)):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        if reply.ending == "hang":
            self.chat.stopping.wait()
        if reply.ending in ("drop", "hang"):
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _send(self, status, content):
        body = _line(content)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_404(self):
        self._send(404, {"error": "404 page not found"})

    def log_message(self, *args):
        """Stay silent."""


def _line(value):
    # Go's encoder, which Ollama uses, escapes these two line separators and no other.
    text = json.dumps(value, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return text.encode() + b"\n"


def _event(choices, **others):
    content = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return b"data: " + _line(content | others) + b"\n"


def _message(content):
    return {"role": "assistant", "content": content}
