"""Progress bars and tables for people, on standard error and standard output.

All texts go through `corag.text.visible`, because they may be anybody's.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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
