"""Steps of the library, shown by whoever runs them."""

import io
from contextlib import contextmanager

import pytest
from rich.console import Console

from corag.cli import console
from corag.progress import counted, showing


@contextmanager
def told(reports, description):
    reports.append(description)
    yield lambda done, total: reports.append((done, total))


def test_counted_items_are_reported_where_somebody_listens():
    reports = []
    assert list(counted("quiet", "ab")) == ["a", "b"]
    with showing(lambda description: told(reports, description)):
        assert list(counted("work", {"a": 1, "b": 2}.items())) == [("a", 1), ("b", 2)]
        assert list(counted("nothing", [])) == []
    assert reports == ["work", (0, 2), (1, 2), "nothing"]


@pytest.mark.parametrize("between", [False, True])
def test_a_bar_has_the_time_left_and_steps_below_it(between, monkeypatch):
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=80, highlight=False)
    monkeypatch.setattr(console, "stderr", lambda: terminal)
    with console.progress("bench", between=between) as report:
        for _ in counted("rounds", range(3)):
            report(1, 2)
        report(2, 2)
    text = shown.getvalue()
    assert "bench" in text and "2/2" in text and "0:00:00" in text
    # What is drawn between is drawn at every report, so no step is missed.
    assert not between or all(f"{done}/3" in text for done in range(3))
