"""What `ask` shows of a reply on narrow screens, without colours, and of texts that are long or odd."""

import re

import pytest

from corag.cli.show import show_reply
from corag.reply import LeftOut, Reply, Source
from corag.text.units import assemble
from corag.types import Answer, Candidate, Chunk, Selection, Trace
from tests.corag.test_ask import COUNTS

LONG = "The pump of the mill by the river, which Otto Brunner built in the year 1790, is " + "very " * 60 + "old."


def reply(answer=None, document="pump.md"):
    chunks = tuple(
        Chunk(f"{document}#{place}", text, {"document": document, "line": place + 1, "headings": ("Use", "Start" * 8)})
        for place, text in enumerate([LONG, "Short \x1b[2J and \u202eodd."])
    )
    text, spans = assemble(chunks)
    at = text.index("1790")
    trace = Trace(chunk_tokens=(90, 7), chunk_similarities=(0.5, None))
    selection = Selection(chunks, text, 97, 128, 0.5, "top-k", trace, tuple(spans))
    sources = [
        Source("[1]", f"{document}, line 1", (0,), spans[0], ((at, at + 4),)),
        Source("[2]", f"{document}, line 2", (1,), spans[1]),
    ]
    left_out = [LeftOut(Candidate(Chunk("a", "The mill."), 0.25), 3, "adds less than its tokens are worth")]
    return Reply("When?", selection, sources, left_out, answer, {"read": 0.01}, COUNTS)


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def shown_lines(capsys):
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_without_a_reader_the_chosen_texts_are_shown_and_what_was_left_out(capsys):
    show_reply(reply(document="a/rather/long/path/of/folders/with/names/pump.md"))
    lines = shown_lines(capsys)
    assert max(map(len, lines)) <= 80
    shown = " ".join(" ".join(lines).split())
    assert "in the year **1790**, is very" in shown and "very old." in shown
    assert "Short \\x1b[2J and \\u202eodd." in shown
    assert "90 tokens, similarity 0.50" in shown and "7 tokens" in shown
    assert ", cited" not in shown and "a (3 tokens, similarity 0.25)" in shown
    assert "97 of 128 tokens" in lines[-2] and "value 0.500" in lines[-2] and lines[-1] == "time: read 10 ms"


def test_an_answer_is_above_its_sources_and_says_which_it_cites(capsys):
    cited = reply(Answer("In 1790 [1][4].", citations=(0,), unknown_citations=(3,)))
    show_reply(cited)
    lines = shown_lines(capsys)
    assert "─ answer ─" in lines[0] and "In 1790 [1][4]." in lines[1]
    assert "Cited but not in the context: [4]" in lines
    assert any(line.startswith("[1] pump.md, line 1") and line.endswith("cited") for line in lines)
    show_reply(cited, details=False)
    assert shown_lines(capsys)[-1] == "[1] pump.md, line 1"
    assert cited.to_dict()["citations"] == {"[1]": "pump.md#0"}


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
    # What is marked still stands out, in bold, and needs no asterisks.
    assert not coloured.search(shown) and "\x1b[1" in shown and "**" not in shown
