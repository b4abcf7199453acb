"""Texts that would move the cursor or fit into no file, and input that looks odd and is right."""

import json

import pytest

from corag.cli.main import MISTAKE, main
from corag.index import ChunkIndex
from corag.registry import READERS
from corag.text.visible import visible
from corag.types import Answer
from tests.experiments.worlds import QUERIES, write_folder
from tests.fakes import FixedReader

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\u202edeep\u202c"
"""Clears the screen, sets the title, turns red, and reads from right to left."""


@pytest.fixture
def says(monkeypatch):
    """Return a function that registers a reader `says` of a text."""
    return lambda text: monkeypatch.setitem(READERS.parts, "says", lambda: FixedReader(Answer(text)))


def is_clean(text):
    return visible(text) == text


@pytest.mark.slow
def test_what_ask_prints_of_texts_and_answers(tmp_path, says, capsys):
    document = {"id": f"a{EVIL}", "title": f"Lake{EVIL}", "text": f"It is {EVIL} 310 metres deep.\r\nAnd salty."}
    data, index = (
        write_folder(tmp_path / "data", [document], [QUERIES[0] | {"gold": [], "candidates": []}]),
        tmp_path / "index",
    )
    assert is_clean(succeeds(capsys, "index", "--data", data, "--out", index, "--quiet"))
    says(f"The answer{EVIL}")
    arguments = ["ask", f"How deep{EVIL}?", "--index", str(index), "--method", "top-k", "--reader", "says"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert is_clean(said) and "The answer\\x1b[2J" in said and "Lake\\x1b[2J" in said
    assert main([*arguments, "--json"]) == 0
    said = capsys.readouterr().out
    assert is_clean(said)
    reply = json.loads(said)
    assert reply["answer"] == f"The answer{EVIL}" and reply["chunks"][0]["id"].startswith(f"a{EVIL}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask", "x", "--index", f"no{EVIL}\nwhere"],
        ["list", "selector", f"a{EVIL}\nb"],
        [f"a{EVIL}\nb"],
        ["list", f"--a{EVIL}\nb"],
    ],
)
def test_an_error_is_one_clean_line(arguments, capsys):
    assert main(arguments) == MISTAKE
    said = capsys.readouterr().err
    assert is_clean(said) and said.count("\n") == 1 and said.startswith("error: ") and "\\x1b[2J" in said


def succeeds(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


ODD_TEXTS = {
    "nul": "before\x00after the lake",
    "emoji": "👩‍👩‍👧 at the lake 🌊🌊, 310 metres deep 😀.",
    "hebrew": "עומק האגם הוא 310 מטרים. הוא מלוח.",
    "arabic": "عمق البحيرة 310 أمتار؟ نعم، وهي مالحة.",
    "mixed": "The lake (אגם) is \u202e310\u202c metres deep.",
    "combining": "Le lac e\u0301tait profond; l\u2019eau\u00a0est sale\u0301e.",
    "empty": "",
    "breaks": "one\r\ntwo\u2028three\x0bfour\x85five",
}


@pytest.mark.slow
def test_any_text_goes_from_corpus_to_answer(tmp_path, capsys):
    documents = [{"id": f"{name} é#1", "title": name, "text": text} for name, text in ODD_TEXTS.items()]
    names = [row["id"] for row in documents]
    shared = {"candidates": names, "split": "dev"}
    queries = [
        {"id": name, "question": text or "?", "answers": [text], "gold": [f"{name} é#1"], **shared}
        for name, text in ODD_TEXTS.items()
    ]
    data = write_folder(tmp_path / "data", documents, queries)
    index = tmp_path / "index"
    succeeds(capsys, "index", "--data", data, "--out", index, "--quiet")
    assert {chunk.text for chunk in ChunkIndex.open(index).chunks()} == {
        f"{name}\n{text}" for name, text in ODD_TEXTS.items() if text
    }
    for question in (ODD_TEXTS["nul"], ODD_TEXTS["mixed"], ODD_TEXTS["breaks"], "🌊"):
        said = json.loads(succeeds(capsys, "ask", question, "--index", index, "--num_candidates", 4, "--json"))
        assert said["question"] == question and said["chunks"]
    out = tmp_path / "r.json"
    succeeds(capsys, "evaluate", "--data", data, "--out", out, "--methods", "naive,corag", "--quiet")
    assert all(row["over_budget"] == 0 for row in json.loads(out.read_text())["methods"])
