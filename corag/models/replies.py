"""Limits of what a model server may send: its clients put lines and replies together, however long they become."""

import sys
import time
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

MAX_BYTES = 128 * 2**20
"""Bytes of a reply: 64 vectors of 4,096 numbers have 6 million, 100,000 streamed tokens 40 million."""
MAX_S = 3600.0
"""Seconds in which a reply must end."""


def client_settings() -> dict[str, Any]:
    """Return settings of the HTTP client below a client package.

    What a question and its context are sent to is the server that the user named, so redirects are errors.
    """
    hooks = {"response": [_limit]}
    return {"event_hooks": hooks, "follow_redirects": False, "headers": {"Accept-Encoding": "identity"}}


def _limit(response: Any) -> None:
    # Client packages differ in the library that they use: httpx, or its successor.
    library = sys.modules[type(response).__module__.partition(".")[0]]
    packing = response.headers.get("content-encoding", "identity")
    if packing != "identity":
        # A packed reply can be a thousand times as long as what is received.
        raise library.DecodingError(f"the reply is packed ({packing}), which was not asked for")
    response.stream = _limited(library)(response.stream)


@cache
def _limited(library: ModuleType) -> type[Any]:
    class Limited(library.SyncByteStream):  # type: ignore[name-defined, misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            received, end_s = 0, time.monotonic() + MAX_S
            for piece in self._stream:
                received += len(piece)
                if received > MAX_BYTES:
                    raise library.ReadError(f"the reply has more than {MAX_BYTES:,} bytes")
                if time.monotonic() > end_s:
                    raise library.ReadError(f"the reply has not ended after {MAX_S:g} seconds")
                yield piece

        def close(self) -> None:
            self._stream.close()

    return Limited
