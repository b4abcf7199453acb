"""The held-out list and its look counter."""

import json

import pytest

from corag.errors import DataError, InputError
from corag.text.data import DataFolder
from experiments.data.splits import document_groups
from experiments.evaluation.comparison import compare
from experiments.evaluation.config import EvaluateConfig, QuestionSet
from experiments.protocol import held_out as module
from experiments.protocol.held_out import held_out_ids, look, not_to_learn
from tests.experiments.worlds import DOCUMENTS, QUERIES, write_folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "list.txt").write_text("# comment\nisland q2\nisland q6\n")
    monkeypatch.setattr(module, "held_out_ids", lambda: held_out_ids(tmp_path / "list.txt"))
    monkeypatch.setattr(module, "REGISTER", tmp_path / "register.jsonl")
    return DataFolder.open(write_folder(tmp_path / "island"))


def test_each_look_is_registered(folder, tmp_path):
    register = tmp_path / "register.jsonl"
    for why in ("first", "with\na line break"):
        assert [query.id for query in look(folder, why)] == ["q2", "q6"]
    rows = [json.loads(line) for line in register.read_text().splitlines()]
    assert [row["why"] for row in rows] == ["first", "with\na line break"]
    assert rows[0].keys() == {"date", "commit", "why", "data", "questions"} and rows[0]["questions"] == 2


def test_a_comparison_that_goes_on_is_one_look(folder, tmp_path):
    settings = {
        "data": str(tmp_path),
        "sets": (QuestionSet("island", "island"),),
        "look": "why",
        "methods": "top-k",
        "reader": "none",
    }
    for limit in (1, None, None):
        compare(EvaluateConfig(**settings, limit=limit, out=str(tmp_path / "out"), quiet=True))
    assert len((tmp_path / "register.jsonl").read_text().splitlines()) == 1


def test_a_comparison_without_a_look_says_what_is_sealed(folder, tmp_path, caplog):
    settings = {"methods": "top-k", "reader": "none", "latency_questions": 0, "quiet": True}
    (folder.path / "source.json").write_text('{"name": "island"}')
    copied = folder.path.rename(tmp_path / "copy")
    [[result]] = compare(EvaluateConfig(**settings, data=str(copied), split="train", limit=2)).values()
    assert result.asked == ("q1", "q2") and "1 of these 2 questions are sealed" in caplog.text
    assert not (tmp_path / "register.jsonl").exists()


def test_nothing_is_looked_at_without_a_reason(folder, tmp_path):
    with pytest.raises(InputError, match="why"):
        look(folder, " ")
    with pytest.raises(DataError):
        look(DataFolder.open(write_folder(tmp_path / "other")), "why")
    assert not (tmp_path / "register.jsonl").exists()


def test_what_is_held_out(folder, tmp_path):
    # By document and by words, too.
    assert {"q2", "q6"} <= not_to_learn(folder)
    shared = dict(zip((query.id for query in folder.queries), document_groups(folder, folder.queries), strict=True))
    held = {shared["q2"], shared["q6"]}
    assert not_to_learn(folder) == {name for name, group in shared.items() if group in held}
    again = [*QUERIES, {**QUERIES[1], "id": "copy", "gold": [], "question": QUERIES[1]["question"].upper()}]
    (tmp_path / "again").mkdir()
    copied = DataFolder.open(write_folder(tmp_path / "again" / "island", DOCUMENTS, again))
    assert not_to_learn(copied) == not_to_learn(folder) | {"copy"}
    whole = DataFolder.open(write_folder(tmp_path / "medquad"))
    assert not_to_learn(whole) == {query.id for query in whole.queries}


def test_the_list_that_ships():
    ids = held_out_ids()
    assert sum(map(len, ids.values())) == 1876 and {"squad", "manual", "policyqa"} <= ids.keys()


def test_questions_that_share_documents_are_one_group(tmp_path):
    queries = [{**QUERIES[0], "gold": ["varn#0-5"]}, {**QUERIES[10], "gold": ["varn"]}, QUERIES[3]]
    folder = DataFolder.open(write_folder(tmp_path / "a", DOCUMENTS, queries))
    first, second, third = document_groups(folder, folder.queries)
    assert first == second != third
