"""What holds inside a `with` block, for whatever is called there and for threads that it starts.

Values; and how long work is stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")


class Ambient(Generic[T]):
    """A value that `with ambient.set(value):` changes inside the block.

    Threads and coroutines that open blocks of their own do not disturb each other. A thread that has opened none sees
    what the main thread's innermost open block set: Python hands threads no context.
    """

    def __init__(self, default: T) -> None:
        self._default = default
        self._here: ContextVar[T] = ContextVar("ambient")
        self._of_main_thread: list[tuple[object, T]] = []

    def get(self) -> T:
        """Return the value that holds here."""
        of_main = self._of_main_thread
        return self._here.get(of_main[-1][1] if of_main else self._default)

    @contextmanager
    def set(self, value: T) -> Iterator[None]:
        """Let a value hold inside the block."""
        entry = (object(), value)
        shared = threading.current_thread() is threading.main_thread()
        token = self._here.set(value)
        if shared:
            self._of_main_thread.append(entry)
        try:
            yield
        finally:
            if shared:
                # Not the last one: blocks of coroutines need not close in the order in which they were opened.
                self._of_main_thread.remove(entry)
            self._here.reset(token)


Report = Callable[[int, int], None]
"""Progress: called with (units done, units in all); 0 in all where that is not known."""

_check: Ambient[Callable[[], object] | None] = Ambient(None)


@contextmanager
def checking(check: Callable[[], object]) -> Iterator[None]:
    """Let a function be called at each `check_cancelled` inside the block, too; what it raises stops the work."""
    around = _check.get()

    def both() -> None:
        if around is not None:
            around()
        check()

    with _check.set(both):
        yield


def check_cancelled() -> None:
    """Stop here if the client has disconnected; see `checking`."""
    if (check := _check.get()) is not None:
        check()


def watched(items: Iterable[T], every: int = 1024) -> Iterator[T]:
    """Yield items, of which a long text may have many, with a `check_cancelled` before every so many."""
    for number, item in enumerate(items):
        if number % every == 0:
            check_cancelled()
        yield item
