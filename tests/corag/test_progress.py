"""Long steps and who shows them."""

from io import StringIO

from rich.console import Console

from corag.cli import console
from corag.cli.console import progress
from corag.progress import step


def shown(monkeypatch, *, terminal, quiet=False):
    """What is written to standard error while a step of a command runs."""
    written = StringIO()
    screen = Console(file=written, force_terminal=terminal, width=100, color_system=None)
    monkeypatch.setattr(console, "stderr", lambda: screen)
    with progress("questions", quiet=quiet) as questions:
        questions(1, 4)
        with step("upper, orders") as orders:
            orders(4096, 123520)
        questions(2, 4)
    return written.getvalue()


def test_on_a_terminal_a_step_stands_below_the_bar_of_its_command(monkeypatch):
    text = shown(monkeypatch, terminal=True)
    assert "upper, orders" in text
    # It goes when it is done.
    assert "upper" not in text.rstrip().splitlines()[-1]


def test_where_nobody_looks_there_is_no_step(monkeypatch):
    assert "upper" not in shown(monkeypatch, terminal=False)
    assert shown(monkeypatch, terminal=True, quiet=True) == ""


def test_a_step_by_itself_says_nothing(capsys):
    with step("upper, orders") as report:
        report(1, 2)
    assert capsys.readouterr() == ("", "")
