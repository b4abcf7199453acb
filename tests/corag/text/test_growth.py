"""What is done with a text grows no faster than the text, whatever is repeated in it.

Steps are lines of our code, the same on every machine. Expressions and libraries take none: of a long text, one whose
time grew with the square, or worse, would not end within the test.
"""

import sys
from contextlib import suppress
from pathlib import Path

import pytest

import corag
from corag.files.chunks import chunk_file
from corag.files.read import UnreadableFileError, parse_file
from corag.text.chunking import chunk_document
from corag.text.documents import Document
from corag.text.tokens import estimated_tokens
from corag.text.units import assemble, units
from corag.text.words import exact_words, words
from corag.types import Chunk

pytestmark = pytest.mark.slow

SHAPES = [
    "word ", "a", "é", "\u0301", " ", "\n", "“", '"', "(", ".", "a. ", "A. ", "1.", "1,", "1 234 ", "1,234,", "v1-2-",
    "a-b_", "aB", "_", "7", "水", "水。", "가 ", "ก", "\U0001f469\u200d", "a\u00ad", "\u202eא", "\ufb01", "\ufdfa", "|",
    "| a | b |\n", "|---|\n", "- a\n", "a:\n", "# a\n", "```\n", "~~~\n", "a?\n", "a\n    b\n", "A\n\n", "ć ", "\x00",
    "http://a.b/c?d=e&", "A... ", "[A]... ", "a\r\n", "a:\n- b\n\n", "[a](b)", "> ", "<p>", "</p>", "<table><tr><td>",
    "<ul><li>", "<a href=#a>a</a>", "<td colspan=1000>", "<!--", "&amp;", "<pre>\n", '"a\n', "a,b\n", ",", '"",',
]  # fmt: skip
PACKAGE = str(Path(corag.__file__).parent)


def read(name):
    def run(text):
        with suppress(UnreadableFileError):  # nothing but marks
            chunk_file(name, parse_file(text.encode(), name), corag.tokens())

    return run


WORK = {
    "words": words,
    "exact words": exact_words,
    "units": lambda text: assemble(units(Chunk("a", text), 1)),
    "chunks": lambda text: chunk_document(Document("a", text), corag.tokens()),
    "estimate": estimated_tokens,
    "bm25": lambda text: corag.reranker("bm25").scorer(text[:1000], [Chunk("a", text), Chunk("b", "a b")]),
}
# Parsers take seconds for the long texts; hostile ones of their own are in `tests.corag.files`.
READERS = {
    "Markdown": read("a.md"),
    "HTML": read("a.html"),
    "CSV": read("a.csv"),
    "text": read("a.txt"),
    "AsciiDoc": read("a.adoc"),
    "mail": lambda text: read("a.eml")(f"Subject: a\nMIME-Version: 1.0\n\n{text}"),
}


def steps(run, text):
    """Return how many lines of the package a call runs."""
    count = 0

    def of_line(frame, event, given):
        nonlocal count
        count += event == "line"
        return of_line

    before = sys.gettrace()
    sys.settrace(lambda frame, event, given: of_line if frame.f_code.co_filename.startswith(PACKAGE) else None)
    try:
        run(text)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [*WORK, *READERS])
def test_steps_are_linear(name):
    run = (WORK | READERS)[name]
    run("The sea is salty. ")  # loads what is loaded once
    grown = {}
    for shape in SHAPES:
        few, many = (steps(run, shape * (size // len(shape)) + "\nThe end.") for size in (1000, 4000))
        # 2,000 steps are for what is done once, from some size on; a square would take sixteen times as many.
        if many > 6 * few + 2000:
            grown[shape] = few, many
    assert not grown


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", WORK)
def test_long_texts_end(name):
    for shape in SHAPES:
        WORK[name](shape * (20_000 // len(shape)))
