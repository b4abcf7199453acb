"""Progress bars and tables for people, on standard error and standard output.

All that is shown here goes through `corag.text.visible`: whose text it is, nobody knows.
"""

from __future__ import annotations

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
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from corag.progress import Report as Report
from corag.progress import showing
from corag.text.visible import visible

NARROW, WIDE = 140, 200
"""Columns of a terminal that wide tables are cut for, and of a wide table."""


def stdout() -> Console:
    """Return a console on standard output."""
    return Console(highlight=False)


def stderr() -> Console:
    """Return a console on standard error, where it does not mix with what a program prints for others."""
    return Console(stderr=True, highlight=False)


def say(text: str, console: Console | None = None) -> None:
    """Print one line of plain text without wrapping, so that a command in it can be copied; by default to stdout."""
    (console or stdout()).print(visible(text), soft_wrap=True, markup=False)


class _Rate(ProgressColumn):
    """Units done per second, or per minute where they take longer."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        return Text(f"{speed:.1f}/s" if speed >= 1 else f"{60 * speed:.1f}/min")


@contextmanager
def progress(description: str, *, quiet: bool = False, between: bool = False) -> Iterator[Report]:
    """Show a bar with rate and time left on standard error while the block runs.

    On a terminal, long steps inside the block have bars of their own below it; see `corag.progress`. Bars are drawn ten
    times a second, beside the work; `between` draws them only when something is reported, so that no timing suffers.
    """
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=stderr(),
        disable=quiet,
        auto_refresh=not between,
    )
    with bar, showing(None if quiet or not bar.console.is_terminal else partial(_step, bar)):
        yield _report(bar, bar.add_task(visible(description), total=None))


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


def print_wide(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], brief: Sequence[str], *, left: Container[str] = ()
) -> None:
    """Print a table that is wider than most terminals: on a narrow one its `brief` columns, and which it leaves out."""
    console = stdout()
    if narrow := console.is_terminal and console.width < NARROW:
        hidden = [heading for key, heading in columns.items() if key not in brief]
        columns = {key: columns[key] for key in brief}
    else:
        # Better a line that is too long than cells that are cut.
        console.width = max(console.width, WIDE)
    console.print(table(rows, columns, left=left))
    if narrow:
        say(f"Left out here: {', '.join(hidden)}; a terminal of {NARROW} columns, or a file, gets them all.", console)


def plain(text: str) -> Text:
    """Return a visible text for a panel or a table; what looks like markup in it is none."""
    return Text(visible(text))


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
