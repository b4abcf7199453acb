"""One event loop in a thread of its own, on which all requests to servers run.

Callers wait in their own threads, whether these have a loop of their own, as a notebook has, or not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")

_lock = threading.Lock()
_running: tuple[threading.Thread, asyncio.AbstractEventLoop] | None = None


def start(coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
    """Run a coroutine on the loop; cancelling the future cancels it."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop())


def run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Return what a coroutine returns; an interrupt of the caller, such as Ctrl-C, cancels it at once."""
    future = start(coroutine)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _loop() -> asyncio.AbstractEventLoop:
    global _running
    with _lock:
        # After a fork the child has the object of the thread, but not the thread.
        if _running is None or not _running[0].is_alive():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="corag-chat", daemon=True)
            thread.start()
            _running = thread, loop
        return _running[1]
