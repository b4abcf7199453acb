"""What `ask` shows of a reply on narrow screens, without colours, and of texts that are long or odd."""

import re

import pytest

from corag.cli.show import show_reply
from corag.readers.passages import Passage
from corag.reply import Reply
from corag.shown import Reading
from corag.text.units import assemble
from corag.types import Answer, Chunk, Selection, Trace
from tests.corag.test_ask import COUNTS

LONG = "The pump of the mill by the river, which Otto Brunner built in the year 1790, is " + "very " * 60 + "old."


def reply(probability=0.7, document="pump.md", told=LONG, marked="1790"):
    chunks = tuple(
        Chunk(f"{document}#{place}", text, {"document": document, "line": place + 1, "headings": ("Use", "Start" * 8)})
        for place, text in enumerate([told, "Short \x1b[2J and \u202eodd."])
    )
    text, spans = assemble(chunks)
    at = told.index(marked)
    trace = Trace(chunk_tokens=(90, 7), chunk_similarities=(0.5, None))
    selection = Selection(chunks, text, 97, 128, 0.5, "top-k", trace, tuple(spans))
    answer, passages = Answer("1790", 0.6), (Passage(chunks[0], probability, ((at, at + len(marked)),), "1790"),)
    return Reply("When?", answer, selection, {"read": 0.01}, COUNTS, read=(Reading("When?", answer, passages),))


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def test_no_line_is_wider_than_the_screen_and_no_excerpt_is_wrapped(capsys):
    show_reply(reply(document="a/rather/long/path/of/folders/with/names/pump.md"))
    shown = capsys.readouterr().out
    lines = [line.rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= 80
    excerpts = [line for line in lines if re.match(r" +(90|7) ", line)]
    assert [line.split()[:2] for line in excerpts] == [["90", "0.50"], ["7", "-"]]
    assert excerpts[0].endswith("…") and "Short \\x1b[2J and \\u202eodd." in excerpts[1]
    assert "**1790**" in shown and "very old. [1]" in " ".join(shown.replace("│", " ").split())


def test_asterisks_of_a_text_do_not_end_a_mark(capsys):
    show_reply(reply(told="Built by **Otto Brunner** in 1790.", marked="**Otto Brunner** in 1790"))
    assert "Built by **Otto Brunner in 1790**. [1]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("probability", "title", "remark"), [(0.7, "answer (likely)", "answer"), (0.3, "closest passages", "closest")]
)
def test_the_screen_shows_what_json_says(capsys, probability, title, remark):
    said = reply(probability).to_dict()
    show_reply(reply(probability))
    lines = capsys.readouterr().out.splitlines()
    shown = " ".join(" ".join(lines).split())
    assert f"─ {title} ─" in lines[0] and said["headline"] == title
    assert f"[1] pump.md, line 1: Use > {'Start' * 8} <- {remark}" in shown
    assert "97 of 128 tokens" in lines[-2] and "value 0.500" in lines[-2] and lines[-1] == "time: read 10 ms"
    assert probability < 0.5 or lines[1].strip("│ ") == said["answer"]
    show_reply(reply(probability), details=False)
    assert capsys.readouterr().out.splitlines()[-1].startswith("[1] pump.md, line 1: Use")


def test_no_color_is_respected(capsys, monkeypatch):
    coloured = re.compile(r"\x1b\[[0-9;]*(?:3[0-7]|4[0-7]|9[0-7])[;m]")
    from corag.cli.console import stdout

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    stdout().print("x", style="red")
    assert coloured.search(capsys.readouterr().out)
    monkeypatch.setenv("NO_COLOR", "1")
    stdout().print("x", style="red")
    show_reply(reply())
    shown = capsys.readouterr().out
    # The answer still stands out, in bold, and needs no asterisks.
    assert not coloured.search(shown) and "\x1b[1" in shown and "**" not in shown
