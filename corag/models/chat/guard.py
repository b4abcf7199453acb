"""What a server may send: to whom a request may go, how much may come back, and in what characters.

The rules stand in event hooks of an `httpx.AsyncClient`, so that they hold for every client package on top of it.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from email.utils import parsedate_to_datetime
from typing import Any

HEADERS = {"Accept-Encoding": "identity"}
"""Of every request; a server that compresses all the same is understood if it uses gzip or deflate."""

_MAX_LINE_BYTES = 1 << 20
# A compressed chunk is unpacked in pieces of this size, so that a bomb is noticed before it fills the memory.
_PIECE_BYTES = 1 << 16
_GZIP_OR_ZLIB = 47

_SURROGATES = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
# Ends of lines to `str.splitlines`, and so to some clients, but not to JSON.
_LINE_ENDS = {"\x85": b"\\u0085", "\u2028": b"\\u2028", "\u2029": b"\\u2029"}
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
_BREAKS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")


class RefusedError(Exception):
    """A reply that is not read on: from another host, too large, or packed in an unknown way."""


class StatusError(Exception):
    """A reply with an HTTP status of 300 or more.

    Attributes:
        status: The status.
        reason: What the server said.
        retry_after_s: Seconds to wait before the next try, if the server named them.
    """

    def __init__(self, status: int, reason: str, retry_after_s: float | None) -> None:
        super().__init__(f"HTTP {status}: {reason}")
        self.status, self.reason, self.retry_after_s = status, reason, retry_after_s


def harmless(text: str) -> str:
    """Return a text without characters that a terminal, a file of lines or an encoder stumbles over.

    Lone surrogates become U+FFFD, other control characters go, and every kind of line end becomes a newline.
    """
    broken = _BREAKS.sub("\n", text)
    return _CONTROLS.sub(lambda found: "\ufffd" if "\ud800" <= found[0] <= "\udfff" else "", broken)


def event_hooks(address: str, max_bytes: int) -> dict[str, list[Any]]:
    """Return the hooks of a client of the server at `address`, whose replies have at most `max_bytes`.

    Args:
        address: URL of the server.
        max_bytes: Maximum bytes of a reply, counted after decompression.
    """
    import httpx

    home = httpx.URL(address)

    async def stay(request: httpx.Request) -> None:
        url = request.url
        upgraded = (home.scheme, url.scheme) == ("http", "https")
        if url.host != home.host or ((url.scheme, url.port) != (home.scheme, home.port) and not upgraded):
            raise RefusedError(
                f"it redirects to another server, {url.scheme}://{url.netloc.decode()}, which is not asked"
            )

    class Bounded(httpx.AsyncByteStream):
        def __init__(self, stream: Any, decoder: Any) -> None:
            self._stream, self._decoder = stream, decoder

        async def __aiter__(self) -> AsyncIterator[bytes]:
            held, size = bytearray(), 0
            async for chunk in self._stream:
                for piece in [chunk] if self._decoder is None else _unpacked(self._decoder, chunk):
                    size += len(piece)
                    if size > max_bytes:
                        raise RefusedError(f"it is longer than {max_bytes / 1e6:g} MB")
                    held += piece
                    if end := held.rfind(b"\n") + 1:
                        yield _repaired(bytes(held[:end]))
                        del held[:end]
                    if len(held) > _MAX_LINE_BYTES:
                        raise RefusedError(f"it has a line of more than {_MAX_LINE_BYTES >> 20} MiB")
            if held:
                yield _repaired(bytes(held))

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: httpx.Response) -> None:
        encoding = response.headers.pop("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise RefusedError(f"it is packed with {encoding!r}, which was not asked for")
        decoder = None if encoding in ("", "identity") else zlib.decompressobj(_GZIP_OR_ZLIB)
        response.stream = Bounded(response.stream, decoder)
        # Some servers have statuses beyond 599, which to httpx are no errors.
        if response.status_code >= 400 or (response.is_redirect and not response.has_redirect_location):
            reason = _reason(await response.aread()) or response.reason_phrase
            raise StatusError(response.status_code, reason, _retry_after_s(response.headers.get("retry-after")))

    return {"request": [stay], "response": [bound]}


def _unpacked(decoder: Any, packed: bytes) -> Iterator[bytes]:
    while piece := decoder.decompress(packed, _PIECE_BYTES):
        yield piece
        packed = decoder.unconsumed_tail


def _repaired(lines: bytes) -> bytes:
    """Return lines of JSON in valid UTF-8 whose strings hold no lone surrogate and no line end."""
    text = lines.decode("utf-8", "replace").encode()
    for end, escaped in _LINE_ENDS.items():
        text = text.replace(end.encode(), escaped)
    # Escaped backslashes and whole pairs are matched first, so that what is left over is alone.
    return _SURROGATES.sub(lambda found: found[0] if len(found[0]) != 6 else b"\\ufffd", text)


def _reason(body: bytes) -> str:
    """Return what a server says of an error: a text, or the text in its JSON."""
    text = body.decode("utf-8", "replace")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for name in ("error", "message", "detail"):
        while isinstance(content, dict) and name in content:
            content = content[name]
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _retry_after_s(value: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header, which names them or a date."""
    if value is None:
        return None
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except ValueError:
        return None
