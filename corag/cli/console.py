"""Progress bars and tables for people, on standard error and standard output.

All texts go through `corag.text.visible`, because they may be anybody's.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from corag.ambient import Report as Report
from corag.ambient import showing
from corag.text.visible import visible

FILE_WIDTH = 200
"""Columns of a table in a file."""
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
def progress(description: str, *, quiet: bool = False, between: bool = False) -> Iterator[Report]:
    """Show a bar with the time left on standard error while the block runs; none is left behind by an error.

    On a terminal, long steps inside the block have bars of their own below it; see `corag.ambient`. A thread draws
    bars ten times a second; with `between`, they are drawn only on reports, which does not disturb measured times.
    Elsewhere, such as in a log, steps and block print a line at most every `LINE_SECONDS`.
    """
    if quiet or not stderr().is_terminal:
        with showing(None if quiet else _lines), _lines(description, quiet=quiet) as report:
            yield report
        return
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=stderr(),
        auto_refresh=not between,
    )
    with bar, showing(partial(_step, bar)):
        try:
            yield _report(bar, bar.add_task(visible(description), total=None))
        except BaseException:
            bar.live.transient = True
            raise


@contextmanager
def _lines(description: str, *, quiet: bool = False) -> Iterator[Report]:
    started = said = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal said
        if not quiet and time.monotonic() - said >= LINE_SECONDS:
            said = time.monotonic()
            of = f" of {total:,}" if total else ""
            say(f"{description}: {done:,}{of} after {said - started:.0f} s", stderr())

    yield report


@contextmanager
def _step(bar: Progress, description: str) -> Iterator[Report]:
    task = bar.add_task(visible(f"  {description}"), total=None)
    try:
        yield _report(bar, task)
    finally:
        bar.remove_task(task)


def _report(bar: Progress, task: TaskID) -> Report:
    return lambda done, total: bar.update(task, completed=done, total=total or None, refresh=not bar.live.auto_refresh)


def table(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, title: str = "", left: Container[str] = ()
) -> Table:
    """Return a table with a line for each row; `columns` maps keys of a row to headings, `left` are keys of texts."""
    drawn = Table(title=escape(visible(title)) or None, title_justify="left")
    for position, (key, heading) in enumerate(columns.items()):
        is_text = position == 0 or key in left
        drawn.add_column(plain(heading), justify="left" if is_text else "right", no_wrap=position == 0)
    for row in rows:
        drawn.add_row(*(plain(_cell(row.get(key))) for key in columns))
    return drawn


def print_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, left: Container[str] = ()) -> None:
    """Print a table; in a file, a cell is wrapped only if it is very long."""
    console = stdout()
    if not console.is_terminal:
        console.width = max(console.width, FILE_WIDTH)
    console.print(table(rows, columns, left=left))


def plain(text: str) -> Text:
    """Return a visible text for a panel or a table; what looks like markup in it is none."""
    return Text(visible(text))


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
