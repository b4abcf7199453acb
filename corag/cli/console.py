"""Progress bars and tables for people, on standard error and standard output.

All texts go through `corag.text.visible`, because they may be anybody's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from corag.ambient import Report as Report
from corag.text.visible import visible

FILE_WIDTH = 200
"""Characters of a line of a table in a file."""
LONG_CELL = 40
"""Characters of a cell from which on it is broken into lines."""
LINE_SECONDS = 30.0
"""Between lines of progress that no terminal shows."""


def stdout() -> Console:
    """Return a console on standard output."""
    return Console(highlight=False)


def stderr() -> Console:
    """Return a console on standard error."""
    return Console(stderr=True, highlight=False)


def say(text: str, console: Console | None = None) -> None:
    """Print one line of plain text without wrapping, so that a command in it can be copied; by default to stdout."""
    (console or stdout()).print(visible(text), soft_wrap=True, markup=False)


@contextmanager
def progress(description: str, *, quiet: bool = False) -> Iterator[Report]:
    """Show a bar with the time left on standard error while the block runs; none is left behind by an error.

    Elsewhere than on a terminal, such as in a log, a line is printed at most every `LINE_SECONDS`.
    """
    if quiet or not stderr().is_terminal:
        started = said = time.monotonic()

        def report_line(done: int, total: int) -> None:
            nonlocal said
            if not quiet and time.monotonic() - said >= LINE_SECONDS:
                said = time.monotonic()
                of = f" of {total:,}" if total else ""
                say(f"{description}: {done:,}{of} after {said - started:.0f} s", stderr())

        yield report_line
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}", markup=False), *columns, console=stderr()) as bar:
        task = bar.add_task(visible(description), total=None)
        try:
            yield lambda done, total: bar.update(task, completed=done, total=total or None)
        except BaseException:
            bar.live.transient = True
            raise


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table of texts: columns with letters to the left, whose cells may be folded, and numbers to the right.

    A line may be longer than the terminal is wide: cells that are cut cannot be read.
    """
    drawn, width = Table(title=escape(visible(title)) or None, title_justify="left"), 1
    for position, (heading, *cells) in enumerate(zip(headings, *rows, strict=True)):
        is_text = any(map(str.isalpha, "".join(cells)))
        drawn.add_column(plain(heading), justify="left" if is_text or not position else "right", no_wrap=not is_text)
        longest = max(map(len, (heading, *cells)))
        width += 3 + (min(longest, LONG_CELL) if is_text else longest)
    for row in rows:
        drawn.add_row(*map(plain, row))
    console = stdout()
    console.width = max(console.width, width, 0 if console.is_terminal else FILE_WIDTH)
    console.print(drawn)


def plain(text: str) -> Text:
    """Return a visible text for a panel or a table; what looks like markup in it is none."""
    return Text(visible(text))
