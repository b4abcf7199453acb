"""Drawing sealed questions of kinds on disk: once for each kind, beside what was learned from and looked at."""

import pytest

from experiments.data.splits import divide
from experiments.labels.table import FORMAT_VERSION, write_questions
from experiments.protocol import draw as module
from experiments.protocol.draw import AGENT_SHARES, draw, main
from experiments.protocol.kinds import read_kinds, sealed_ids
from tests.experiments.worlds import QUERIES, write_folder

NEWER = [{**query, "id": f"n{query['id']}", "question": f"Once more: {query['question']}"} for query in QUERIES]


@pytest.fixture
def world(tmp_path):
    """Two kinds of twelve questions each, a label table of the first, and a comparison that has seen some of it."""
    write_folder(tmp_path / "island")
    write_folder(tmp_path / "isle", queries=NEWER)
    rows = [{"data": str(tmp_path / "island"), "query": query["id"], "group": query["id"]} for query in QUERIES[:6]]
    write_questions(tmp_path / "labels.parquet", rows, {"format_version": FORMAT_VERSION})
    (tmp_path / "seen.yaml").write_text(
        f"sources:\n- {{data: {tmp_path / 'island'}, split: train, part: all}}\nbudgets: [64]\n"
    )
    return rows


def kinds_of(folder, *names, **settings):
    kinds = "".join(f"- {{name: {name}, data: {folder / name}, split: any, pool: candidates}}\n" for name in names)
    others = "".join(f"{name}: {value}\n" for name, value in settings.items())
    (folder / "kinds.yaml").write_text(f"kinds:\n{kinds}{others}")
    return read_kinds(folder / "kinds.yaml")


def test_a_kind_is_drawn_once_and_later_kinds_are_added(tmp_path):
    write_folder(tmp_path / "island")
    write_folder(tmp_path / "isle", queries=NEWER)
    sealed = tmp_path / "sealed.txt"
    first = draw(kinds_of(tmp_path, "island"), sealed)
    before, drawn = sealed.read_text(), sealed_ids(sealed)
    assert before.startswith("# Sealed questions") and 0 < first["island"] == len(drawn["island"]) < len(QUERIES)
    assert draw(kinds_of(tmp_path, "island", sealed=0.9), sealed) == first and sealed.read_text() == before
    both = draw(kinds_of(tmp_path, "island", "isle"), sealed)
    assert sealed.read_text().startswith(before) and both.keys() == {"island", "isle"}
    assert sealed_ids(sealed)["island"] == drawn["island"] and sealed_ids(sealed)["isle"] <= {q["id"] for q in NEWER}


def test_what_was_learned_from_or_looked_at_is_not_drawn(tmp_path, world):
    names, groups = [row["data"] for row in world], [row["group"] for row in world]
    test_part = len(AGENT_SHARES) - 1
    learned = {
        row["query"] for row, part in zip(world, divide(names, groups, AGENT_SHARES), strict=True) if part < test_part
    }
    seen = {query["id"] for query in QUERIES if query["split"] == "train"}
    sealed = tmp_path / "sealed.txt"
    kinds = kinds_of(tmp_path, "island", learned="[labels.parquet]", seen="[seen.yaml]", sealed=0.9)
    assert draw(kinds, sealed, tmp_path)["island"] > 0
    assert learned and seen and not sealed_ids(sealed)["island"] & (learned | seen)


def test_a_question_of_two_kinds_is_not_drawn(tmp_path):
    write_folder(tmp_path / "island")
    write_folder(tmp_path / "isle", queries=[*NEWER, *QUERIES[:6]])
    sealed = tmp_path / "sealed.txt"
    draw(kinds_of(tmp_path, "island", "isle", sealed=0.99), sealed)
    twice = {query["id"] for query in QUERIES[:6]}
    assert not sealed_ids(sealed)["island"] & twice and not sealed_ids(sealed)["isle"] & twice


def test_the_command_says_how_many_it_drew(tmp_path, monkeypatch, capsys):
    write_folder(tmp_path / "island")
    kinds_of(tmp_path, "island")
    monkeypatch.setattr(module, "draw", lambda kinds: draw(kinds, tmp_path / "sealed.txt"))
    assert main(["--kinds", str(tmp_path / "kinds.yaml")]) == 0
    number = len(sealed_ids(tmp_path / "sealed.txt")["island"])
    assert f"{number} sealed questions in" in capsys.readouterr().out
    assert main(["--kinds", str(tmp_path / "nowhere.yaml")]) == 2
    assert "nowhere.yaml does not exist" in capsys.readouterr().err
