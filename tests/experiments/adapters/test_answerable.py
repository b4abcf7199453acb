"""The calibration of "not found": contexts that answer and that do not, and the model that tells them apart."""

import json

import pytest

from corag.types import Chunk
from experiments.adapters import answerable as module
from experiments.adapters.answerable import Ranked, fit, main, tasks
from experiments.protocol.kinds import read_kinds
from tests.experiments.worlds import DOCUMENTS, QUERIES, write_folder

pytestmark = pytest.mark.slow

UNSUPPORTED = [
    {"id": f"u{number}", "question": f"Who wrote the {number}. song of the choir?", "answers": [], "gold": [],
     "candidates": None, "split": "test"}
    for number in range(8)
]  # fmt: skip


@pytest.fixture(autouse=True)
def world(tmp_path, monkeypatch):
    """Two corpora of one island each; in the second everything has another name."""
    other = [{name: text.replace("Varn", "Ost") for name, text in one.items()} for one in DOCUMENTS]
    renamed = [{**one, "id": f"n{one['id']}", "question": one["question"].replace("Varn", "Ost")} for one in QUERIES]
    write_folder(tmp_path / "island", queries=[*QUERIES, *UNSUPPORTED])
    write_folder(tmp_path / "isle", other, renamed)
    kinds = "".join(
        f"- {{name: {name}, data: {tmp_path / name}, split: any, pool: corpus}}\n" for name in ("island", "isle")
    )
    (tmp_path / "kinds.yaml").write_text(f"kinds:\n{kinds}choosing: 0.5\n")
    monkeypatch.setattr(module, "read_kinds", lambda: read_kinds(tmp_path / "kinds.yaml"))
    monkeypatch.setattr(module, "sealed_ids", lambda: {"island": frozenset({"q2"})})
    monkeypatch.setattr(module, "KINDS", ("island", "isle"))


def test_what_is_asked_of_each_context(world):
    found = list(tasks(20))
    assert {row["variant"] for row in found} == {"answerable", "removed", "crossed", "null"}
    assert not [row for row in found if row["kind"] == "island" and row["id"] == "q2"]
    by_id = {query["id"]: query for query in QUERIES}
    names = {document["id"]: f"{document['title']}\n{document['text']}" for document in DOCUMENTS}
    seen = 0
    for row in found:
        if row["kind"] == "island" and row["id"] in by_id:
            gold = [names[name] for name in by_id[row["id"]]["gold"]]
            if row["variant"] == "removed":
                assert not any(text in row["text"] for text in gold)
            if row["variant"] == "answerable" and by_id[row["id"]]["answers"]:
                assert any(text in row["text"] for text in gold) or by_id[row["id"]]["answers"][0] in row["text"]
                seen += 1
    assert seen > 3
    without_evidence = [query["id"] for query in (*UNSUPPORTED, *QUERIES) if not query["gold"]]
    assert {row["id"].lstrip("n") for row in found if row["variant"] == "null"} <= set(without_evidence)


def test_the_rarest_words_rank_first():
    chunks = [Chunk(str(place), text) for place, text in enumerate(["the sea", "the sea the sea", "a lamp in the sea"])]
    assert Ranked(chunks).best("Which lamp?")[0].id == "2"
    # Of two texts with the word, the one that is about nothing else; none is left out.
    assert [chunk.id for chunk in Ranked(chunks).best("SEA")] == ["1", "0", "2"]
    assert len(Ranked(chunks).best("nothing of it")) == 3


def test_contexts_with_an_answer_are_told_from_those_without_one():
    def row(number, *, answerable):
        margin = (1 if answerable else -1) * (1 + number % 3)
        return {"part": "training", "variant": "answerable" if answerable else "removed", "question": "Who is Ann?",
                "text": "Ann is a smith." if answerable else "It rains.", "margin": margin, "none": 0.1}  # fmt: skip

    rows = [row(number, answerable=answerable) for number in range(20) for answerable in (True, False)]
    model = fit([*rows, {**row(0, answerable=True), "part": "choosing", "margin": -99}])
    chances = {
        answerable: model.probability(module._signals(row(1, answerable=answerable))) for answerable in (True, False)
    }
    assert chances[False] < 0.5 < chances[True] and chances[False] < model.threshold


def test_the_command_measures_once_and_says_what_is_refused(tmp_path, capsys):
    out = tmp_path / "runs" / "answerable.jsonl"
    main(str(out), "3")
    said = capsys.readouterr().out
    assert "training, answerable: " in said and "choosing, removed: " in said and '"threshold": ' in said
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == len({(row["kind"], row["id"], row["variant"]) for row in rows}) == len(list(tasks(3)))
    before = out.read_bytes()
    main(str(out), "3")
    assert out.read_bytes() == before and capsys.readouterr().out == said
