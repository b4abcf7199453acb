"""Servers on this machine in place of the hub and of the web."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class FileServer(ThreadingHTTPServer):
    """Files of one data set, as the Hugging Face hub and as a plain server give them.

    Attributes:
        files: Content by path.
        claimed: SHA-256 that the hub claims, where it is not that of the content.
        small: Files that are not kept as large ones, so that only Git names their content.
        gated: Whether the terms have to be accepted first.
        break_after: Bytes after which a reply breaks off.
        ignore_ranges: Whether the server sends whole files, whatever is asked for.
        asked: Method, path and range of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.claimed: dict[str, str] = {}
        self.small: set[str] = set()
        self.gated = self.ignore_ranges = False
        self.break_after: int | None = None
        self.asked: list[tuple[str, str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def sha256(self, path: str) -> str:
        return self.claimed.get(path) or hashlib.sha256(self.files[path]).hexdigest()

    def content_requests(self) -> list[tuple[str, str]]:
        return [(path, span) for method, path, span in self.asked if method == "GET" and "/api/" not in path]

    def handle_error(self, request, client_address) -> None:
        """Broken connections are meant."""


class _Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_HEAD(self) -> None:
        self._reply(with_body=False)

    def do_GET(self) -> None:
        self._reply(with_body=True)

    def log_message(self, *_: object) -> None:
        pass

    def _reply(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append((self.command, path, self.headers.get("Range", "")))
        if self.server.gated:
            return self._send(403, b"gated", {"X-Error-Code": "GatedRepo"}, with_body)
        if path.startswith("/api/"):
            return self._send(200, json.dumps(self._listing(path)).encode(), {}, with_body)
        name = path.partition(f"/resolve/{COMMIT}/")[2] or path.partition("/resolve/main/")[2] or path.lstrip("/")
        if name not in self.server.files:
            return self._send(404, b"none", {"X-Error-Code": "EntryNotFound"}, with_body)
        content, status = self.server.files[name], 200
        headers = {"Accept-Ranges": "bytes"}
        if "/resolve/" in path:
            tag = self.server.sha256(name)
            headers |= {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"', "X-Linked-Etag": f'"{tag}"',
                        "X-Linked-Size": str(len(content))}  # fmt: skip
        asked = self.headers.get("Range", "").removeprefix("bytes=").partition("-")[0]
        if asked and int(asked) >= len(content):
            return self._send(416, b"", {}, with_body)
        if asked and not self.server.ignore_ranges:
            headers["Content-Range"] = f"bytes {asked}-{len(content) - 1}/{len(content)}"
            content, status = content[int(asked) :], 206
        return self._send(status, content, headers, with_body)

    def _listing(self, path: str) -> object:
        siblings = [
            {"rfilename": name, "size": len(content), "blobId": git_hash(content)}
            | ({} if name in self.server.small else {"lfs": {"size": len(content), "sha256": self.server.sha256(name),
                                                             "pointerSize": 130}})
            for name, content in self.server.files.items()
        ]  # fmt: skip
        if "/tree/" not in path:
            return {"id": "some/data", "sha": COMMIT, "siblings": siblings}
        return [
            {"type": "file", "path": one["rfilename"], "oid": one["blobId"], "size": one["size"],
             "lfs": {"oid": one["lfs"]["sha256"], "size": one["size"], "pointerSize": 130}}
            for one in siblings
        ]  # fmt: skip

    def _send(self, status: int, content: bytes, headers: dict[str, str], with_body: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            most = self.server.break_after
            self.wfile.write(content if most is None else content[:most])
            if most is not None:
                self.close_connection = True


@contextmanager
def file_server() -> Iterator[FileServer]:
    with FileServer() as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
