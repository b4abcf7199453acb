"""What looks odd and is right, and a disk that is full."""

import json

import pytest

import corag
from corag.cli.main import MISTAKE, main
from corag.index import ChunkIndex
from tests.experiments.worlds import listing, write_folder
from tests.processes import run_command


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


@pytest.fixture(scope="module")
def warm():
    """The converted model stands in the cache, so that a limited process need not write it."""
    corag.embedder().embed(["text"])


COMMANDS = {
    "index": (600, "index", ["--max_tokens", "24"]),
    "evaluate": (3000, "r.json", ["--methods", "naive,corag", "--budget", "96"]),
}
"""Command: the most bytes of a file, what it writes, and its settings."""


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_error_and_the_work_goes_on_after_it(tmp_path, small_data, warm, command):
    limit_bytes, out, settings = COMMANDS[command]
    before = listing(small_data)
    arguments = [command, "--data", small_data, "--out", tmp_path / out, *settings, "--quiet"]
    done = run_command(*arguments, limit_bytes=limit_bytes, TMPDIR=str(tmp_path))
    assert done.returncode == MISTAKE, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and "too large" in lines[0]
    assert str(tmp_path) in lines[0]
    assert listing(small_data) == before
    assert command == "index" or not (tmp_path / out).exists()
    done = run_command(*arguments)
    assert (done.returncode, "error:" in done.stderr) == (0, False), done.stderr
    assert (tmp_path / out).exists() and not list(tmp_path.glob("*journal*"))
