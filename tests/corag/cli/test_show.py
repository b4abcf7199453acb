"""What `ask` shows of a reply on narrow screens, without colours, and of texts that are long or odd."""

import re

import pytest

from corag.cli.show import show_reply
from corag.readers.context import sentence_at, with_sentences
from corag.reply import Reply
from corag.text.units import assemble
from corag.types import Answer, Chunk, Selection, Trace
from tests.corag.test_ask import COUNTS

LONG = "The pump of the mill by the river, which Otto Brunner built in the year 1790, is " + "very " * 60 + "old."


def reply(answer_at="1790", *, found=True, confidence=0.6, document="pump.md"):
    chunks = tuple(
        Chunk(f"{document}#{place}", text, {"document": document, "line": place + 1, "headings": ("Use", "Start" * 8)})
        for place, text in enumerate([LONG, "Short \x1b[2J and \u202eodd."])
    )
    text, spans = assemble(chunks)
    at = text.index(answer_at)
    answer = Answer(answer_at, confidence, ((at, at + len(answer_at)),), chunk=0, found=found)
    answer = with_sentences(answer, text, [sentence_at(text, at)])
    trace = Trace(chunk_tokens=(90, 7), chunk_similarities=(0.5, None))
    selection = Selection(chunks, text, 97, 128, 0.5, "top-k", trace, tuple(spans))
    return Reply("When?", answer, selection, {"read": 0.01}, COUNTS)


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
    # Of a long sentence, what stands around the answer.
    assert "**1790**" in shown and "very ... [1]" in " ".join(shown.replace("│", " ").split())


def test_sources_stand_beside_the_chunks_with_how_sure_the_reader_is(capsys):
    show_reply(reply())
    shown = " ".join(capsys.readouterr().out.split())
    assert f"[1] pump.md, line 1: Use > {'Start' * 8} <- answer: likely" in shown
    show_reply(reply(), details=False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("[1] pump.md, line 1: Use")


def test_what_is_not_found_is_said_with_what_comes_closest(capsys):
    show_reply(reply(found=False))
    shown = capsys.readouterr().out
    assert "─ not found in these documents ─" in shown and "Closest, though it may be no answer:" in shown
    assert "<- answer" not in shown and "likely" not in shown


@pytest.mark.parametrize("confidence", [None, 0.1])
def test_confidence_in_the_title(capsys, confidence):
    show_reply(reply(confidence=confidence))
    title = capsys.readouterr().out.splitlines()[0]
    assert ("─ answer ─" in title) if confidence is None else ("─ answer (a guess) ─" in title)


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
