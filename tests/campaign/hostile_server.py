"""A server on loopback that answers every request in one of many bad ways, byte by byte below any HTTP library."""

import contextlib
import gzip
import json
import re
import socket
import struct
import threading
import zlib
from functools import cache
from itertools import repeat

RESET, HANG = object(), object()
"""What a mode may yield besides bytes: the connection is reset; nothing follows, and it stays open."""
PAUSE_S = 0.01


def reply(body=b"", *headers, status="200 OK", length=None):
    """Return a whole reply that is right but for what is given."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def open_reply(*headers):
    """Return the head of a reply without an end."""
    return "\r\n".join(["HTTP/1.1 200 OK", "Connection: close", *headers, "", ""]).encode()


def said(path, content="Paris", *, done=True, **others):
    """Return a reply of a model in the protocol of a path; `others` go into its JSON."""
    if path == "/api/chat":
        message = {"role": "assistant", "content": content}
        return json.dumps({"model": "m", "message": message, "done": done} | others).encode() + b"\n"
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": "stop" if done else None}
    return b"data: " + json.dumps({"id": "1", "choices": [choice]} | others).encode() + b"\n\n"


def line(path, text):
    """Return a line of a stream that holds a text instead of a model's reply."""
    content = text.encode() if isinstance(text, str) else text
    return content + b"\n" if path == "/api/chat" else b"data: " + content + b"\n\n"


def scored(path, number):
    """Return a reply whose log-probability is the number."""
    token = {"token": "Paris", "logprob": 0.125}
    content = [token] if path == "/api/chat" else {"content": [token]}
    if path == "/api/chat":
        text = said(path, logprobs=content)
    else:
        choice = {"index": 0, "delta": {"content": "Paris"}, "finish_reason": "stop", "logprobs": content}
        text = said(path, choices=[choice])
    return text.replace(b"0.125", number.encode())


def vectors(path, *rows):
    """Return a reply of an embedding model."""
    if path == "/api/embed":
        return f'{{"embeddings": [{", ".join(rows)}]}}'.encode()
    data = (f'{{"index": {row}, "embedding": {numbers}}}' for row, numbers in enumerate(rows))
    return f'{{"data": [{", ".join(data)}]}}'.encode()


@cache
def bomb():
    """Return 32 MB of zeros, packed."""
    packer = zlib.compressobj(wbits=31)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(32))
    return packed + packer.flush()


def whole(body):
    """A reply with a right head and this body."""
    return lambda path: iter([reply(body(path), "Content-Type: application/json")])


def raw(*pieces):
    """Bytes as they are, whatever is asked."""
    return lambda path: iter(pieces)


def status(text, *headers, body=b'{"error": "no"}'):
    """A reply of a status."""
    return raw(reply(body, *headers, status=text))


GOOD = whole(lambda path: vectors(path, "[3, 4]", "[1, 0]") if "embed" in path else said(path))
MODES = {
    # The connection
    "closed at once": raw(),
    "reset at once": raw(RESET),
    "silence": raw(HANG),
    "junk": raw(b"HELLO\r\n\r\n"),
    "zeros": raw(bytes(4096)),
    "a TLS alert": raw(b"\x15\x03\x01\x00\x02\x02\x28"),
    "HTTP/2": raw(b"\x00\x00\x12\x04" + bytes(30)),
    "half a status line": raw(b"HTTP/1.1 20"),
    "half the headers": raw(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "headers and reset": raw(open_reply(), RESET),
    "headers and silence": raw(open_reply(), HANG),
    # Headers
    "an endless header": lambda path: iter([b"HTTP/1.1 200 OK\r\nX: ", *repeat(b"x" * 65536, 3000)]),
    "endless headers": lambda path: iter([b"HTTP/1.1 200 OK\r\n", *repeat(b"X: y\r\n" * 8192, 3000)]),
    "headers drop by drop": lambda path: iter([b"HTTP/1.1 200 OK\r\n", *(b"X: y\r\n" for _ in range(60))]),
    "a length that is too long": lambda path: iter([reply(said(path), length=10**6)]),
    "a length that is too short": lambda path: iter([reply(said(path), length=9)]),
    "a length below 0": lambda path: iter([reply(said(path), length=-1)]),
    "two lengths": lambda path: iter([reply(said(path), "Content-Length: 3")]),
    "a length and chunks": lambda path: iter([reply(said(path), "Transfer-Encoding: chunked")]),
    "chunks of no size": raw(open_reply("Transfer-Encoding: chunked"), b"zz\r\nabc\r\n0\r\n\r\n"),
    "a chunk of a huge size": raw(open_reply("Transfer-Encoding: chunked"), b"ffffffffffffffff\r\nabc"),
    "an unknown packing": raw(reply(b"{}", "Content-Encoding: br")),
    "two packings": raw(reply(gzip.compress(gzip.compress(b"{}")), "Content-Encoding: gzip, gzip")),
    "a bomb": lambda path: iter([reply(bomb(), "Content-Encoding: gzip")]),
    "a bomb as an error": lambda path: iter([reply(bomb(), "Content-Encoding: gzip", status="500 Oops")]),
    "half a packed text": lambda path: iter([reply(gzip.compress(said(path))[:-9], "Content-Encoding: gzip")]),
    # Statuses
    "many 100": lambda path: iter(repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, 5)),
    "101": raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", HANG),
    "204": raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "205": status("205 Reset Content"),
    "206": status("206 Partial Content"),
    "300 without a place": status("300 Multiple Choices"),
    "a redirect to itself": status("302 Found", "Location: /api/chat"),
    "a redirect to a file": status("307 Temporary Redirect", "Location: file:///etc/passwd"),
    "a redirect to nowhere": status("308 Permanent Redirect", "Location: http://"),
    "a redirect elsewhere": status("307 Temporary Redirect", "Location: http://127.0.0.2:9/api/chat"),
    "304": raw(b"HTTP/1.1 304 Not Modified\r\n\r\n"),
    "400 as a page": status("400 Bad Request", body=b"<html><h1>Bad\x1b[31m</h1></html>"),
    "401": status("401 Unauthorized", "WWW-Authenticate: Basic"),
    "413": status("413 Content Too Large"),
    "418": status("418 I'm a teapot", body=b""),
    "429 for ever": status("429 Too Many Requests", "Retry-After: 1e309"),
    "429 until the past": status("429 Too Many Requests", "Retry-After: -5"),
    "429 of no number": status("429 Too Many Requests", "Retry-After: nan"),
    "429 in the year 9999999": status("429 Too Many Requests", "Retry-After: Fri, 31 Dec 9999999 23:59:59 GMT"),
    "500 of 20 MB": status("500 Oops", body=b"x" * 20_000_000),
    "500 too deep": status("500 Oops", body=b"[" * 100_000),
    "500 of nested errors": status("500 Oops", body=b'{"error": ' * 900 + b'"x"' + b"}" * 900),
    "503 of bytes": status("503 Busy", body=bytes(range(256)) * 40),
    "status 999": status("999 Who Knows"),
    "status 42": status("42 Too Short"),
    "a status of text": status("OK OK"),
    # Contents
    "nothing": whole(lambda path: b""),
    "a page": whole(lambda path: b"<!doctype html><p>Welcome"),
    "null": whole(lambda path: line(path, "null")),
    "a list": whole(lambda path: line(path, "[]")),
    "a number": whole(lambda path: line(path, "3")),
    "an empty object": whole(lambda path: line(path, "{}")),
    "no choices": whole(lambda path: line(path, '{"id": "1", "choices": []}')),
    "too deep": whole(lambda path: line(path, "[" * 100_000)),
    "5,000 digits": whole(lambda path: line(path, '{"done": true, "eval_count": ' + "9" * 5000 + "}")),
    "duplicate keys": whole(lambda path: line(path, '{"done": true, "done": false, "choices": [], "choices": 3}')),
    "not UTF-8": whole(lambda path: said(path).replace(b"Paris", b"Par\xff\xfe\xc3is")),
    "half characters": whole(lambda path: said(path, "Par\ud800is\udc00")),
    "control characters": whole(lambda path: said(path, "Par\x00\x1b[2J\u2028is\x9b31m")),
    "a mark of byte order": whole(lambda path: b"\xef\xbb\xbf" + said(path)),
    "content of a number": whole(lambda path: said(path, 3)),
    "content of a list": whole(lambda path: said(path, ["Paris"])),
    "NaN as a score": whole(lambda path: scored(path, "NaN")),
    "an endless score": whole(lambda path: scored(path, "1e999")),
    "a score above 0": whole(lambda path: scored(path, "700.0")),
    "a score of text": whole(lambda path: scored(path, '"high"')),
    "counts below 0": whole(lambda path: said(path, prompt_eval_count=-5, eval_count=-1)),
    "counts of text": whole(lambda path: said(path, prompt_eval_count="many", usage={"prompt_tokens": "many"})),
    "an endless line": lambda path: iter([open_reply(), *repeat(b"x" * 65536, 3000)]),
    "an endless answer": lambda path: iter([open_reply(), *repeat(said(path, "on and ", done=False) * 999, 3000)]),
    "an answer drop by drop": lambda path: iter([open_reply(), *(said(path, "a", done=False) for _ in range(60))]),
    "empty pieces for ever": lambda path: iter([open_reply(), *repeat(said(path, "", done=False) * 999, 3000)]),
    "no end": lambda path: iter([open_reply(), said(path, done=False)]),
    "half a line": lambda path: iter([open_reply(), said(path), said(path)[:20]]),
    # Vectors
    **{
        f"vectors {name}": whole(lambda path, rows=rows: vectors(path, *rows))
        for name, rows in {
            "of text": ('["a"]', '["b"]'), "of NaN": ("[NaN, 1]", "[1, NaN]"), "without end": ("[1e999]", "[1]"),
            "beyond float32": ("[1e300, 1]", "[1, 1]"), "of 5,000 digits": ("[" + "9" * 5000 + "]", "[1]"),
            "of zeros": ("[0, 0]", "[0, 0]"), "that are short of one": ("[1, 0]",), "of two lengths": ("[1]", "[1, 0]"),
            "of no numbers": ("[]", "[]"), "of null": ("null", "null"), "too deep": ("[[1]]", "[[2]]"),
        }.items()
    },
}  # fmt: skip
"""What a server sends back, by name."""


class HostileServer:
    """Serves on a free port while its `with` block runs; `mode` may change in between."""

    def __init__(self):
        self.mode = GOOD
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._accept)

    @property
    def host(self):
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        self._stopping.set()
        with contextlib.suppress(OSError):
            socket.create_connection(self._socket.getsockname()).close()
        self._thread.join()
        self._socket.close()

    def _accept(self):
        while not self._stopping.is_set():
            connection, _ = self._socket.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError, ValueError), connection:
            connection.settimeout(5)
            head = b""
            while b"\r\n\r\n" not in head and (got := connection.recv(65536)):
                head += got
            # All of the request: closing a connection with unread bytes resets it, and the reply may be lost.
            head, _, body = head.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            while length and len(body) < int(length[1]) and (got := connection.recv(65536)):
                body += got
            path = head.split(b" ", 2)[1].decode() if b" " in head else "/"
            for number, piece in enumerate(self.mode(path)):
                if self._stopping.is_set():
                    return
                if piece is HANG:
                    # Until the client has had enough, or the test is over.
                    while not self._stopping.wait(PAUSE_S) and connection.recv(65536):
                        pass
                elif piece is RESET:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    connection.sendall(piece)
                    # Small pieces are meant to be slow.
                    if number > 9 and len(piece) < 1000 and self._stopping.wait(PAUSE_S):
                        return
