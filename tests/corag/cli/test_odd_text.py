"""Texts that would move the cursor or fit into no file, and input that looks odd and is right."""

import json

import pytest

from corag.cli.main import MISTAKE, main
from corag.registry import READERS
from corag.text.visible import visible
from corag.types import Answer
from tests.experiments.worlds import QUERIES, write_folder
from tests.fakes import FakeReader

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\u202edeep\u202c"
"""Clears the screen, sets the title, turns red, and reads from right to left."""


def is_clean(text):
    return visible(text) == text


@pytest.mark.slow
def test_what_ask_prints_of_texts_and_answers(tmp_path, monkeypatch, capsys):
    text = f"It is {EVIL} 310 metres deep.\r\nAnd salty."
    document = {"id": f"a{EVIL}", "title": f"[b]Lake{EVIL}", "text": text}
    data = write_folder(tmp_path / "data", [document], [QUERIES[0] | {"gold": [], "candidates": []}])
    index = str(tmp_path / "index")
    assert main(["index", "--data", str(data), "--out", index, "--quiet"]) == 0
    assert is_clean(capsys.readouterr().out)
    answer = f"[/] The [b]answer{EVIL}"  # no markup of the terminal
    monkeypatch.setitem(READERS.parts, "says", lambda: FakeReader(Answer(answer)))
    arguments = ["ask", f"How deep{EVIL}?", "--index", index, "--method", "top-k", "--reader", "says"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert is_clean(said) and "[/] The [b]answer\\x1b[2J" in said and "[b]Lake\\x1b[2J" in said
    assert main([*arguments, "--json"]) == 0
    said = capsys.readouterr().out
    assert is_clean(said)
    reply = json.loads(said)
    assert reply["answer"] == answer and reply["chunks"][0]["id"].startswith(f"a{EVIL}")


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
