"""Progress of long steps inside the library, shown by whoever runs them; and how they can be stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from corag.ambient import Ambient

T = TypeVar("T")

Report = Callable[[int, int], None]
"""Called with (units done, units in all); 0 in all where that is not known."""

Show = Callable[[str], AbstractContextManager[Report]]
"""Shows the progress of a step while its block runs, given what the step is called."""

_show: Ambient[Show | None] = Ambient(None)
_check: Ambient[Callable[[], object] | None] = Ambient(None)


def checking(check: Callable[[], object]) -> AbstractContextManager[None]:
    """Let `check` be called at each `checkpoint` inside a block; what it raises stops the work."""
    return _check.set(check)


def checkpoint() -> None:
    """Stop here if the client has disconnected; see `checking`."""
    if (check := _check.get()) is not None:
        check()


def showing(show: Show | None) -> AbstractContextManager[None]:
    """Let long steps inside a block be shown; None shows none."""
    return _show.set(show)


@contextmanager
def step(description: str) -> Iterator[Report]:
    """Give a step that may take long its report, which may be ignored; each report is a `checkpoint`."""

    def told(done: int, total: int) -> None:
        checkpoint()
        report(done, total)

    with (_show.get() or _silently)(description) as report:
        yield told


@contextmanager
def _silently(description: str) -> Iterator[Report]:
    yield lambda done, total: None


def counted(description: str, items: Collection[T]) -> Iterator[T]:
    """Yield items one by one, each a unit of a step."""
    with step(description) as report:
        for done, item in enumerate(items):
            report(done, len(items))
            yield item
