"""Data folders: by path and by name, of our own form and of BEIR's."""

import gzip
import logging
from pathlib import Path

import pytest

from corag.errors import DataError
from corag.text.data import DataFolder, data_cache, find_data, passage_at, read_corpus
from corag.text.documents import Document
from tests.experiments.worlds import write_folder

CORPUS = [{"id": "a", "title": "A", "text": "Text of a."}, {"id": "b", "title": "", "text": "Text of b."}]
QUERY = {"id": "q1", "question": "What?", "answers": ["this"], "gold": ["a"], "split": "test"}


def write(folder, corpus=CORPUS, queries=(QUERY,), *, gz=False):
    """Write a data folder, its files packed or not."""
    write_folder(folder, corpus, queries)
    for file in list(folder.glob("*.jsonl")) if gz else ():
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    return folder


@pytest.mark.parametrize("gz", [False, True], ids=["plain", "gz"])
def test_a_folder_is_read(tmp_path, gz):
    queries = [
        QUERY,
        {"id": "q2", "question": "Who?", "candidates": ["b", "a", "b"], "level": "hard", "hops": [1]},
        {"id": "q3", "question": "Why?", "grades": {"b": 0, "a": 2}},
    ]
    folder = DataFolder.open(write(tmp_path, queries=queries, gz=gz))
    assert folder.path == tmp_path
    assert list(folder.documents.values()) == [Document("a", "Text of a.", "A"), Document("b", "Text of b.")]
    first, second, third = folder.queries
    assert (first.id, first.question, first.answers, first.gold, first.split) == (
        "q1", "What?", ("this",), ("a",), "test",
    )  # fmt: skip
    assert (first.candidates, first.extra) == (None, {})
    assert (second.answers, second.gold, second.split) == ((), (), "all")
    assert (second.candidates, second.extra) == (("b", "a"), {"level": "hard", "hops": [1]})
    assert (third.gold, third.grades) == (("a",), {"b": 0, "a": 2})
    assert read_corpus(str(tmp_path)) == folder.documents


def test_splits(tmp_path):
    queries = [QUERY | {"id": str(i), "split": "dev" if i % 3 else "test"} for i in range(6)]
    folder = DataFolder.open(write(tmp_path, queries=queries))
    assert [query.id for query in folder.split("dev")] == ["1", "2", "4", "5"]
    assert [query.id for query in folder.split("dev", limit=3)] == ["1", "2", "4"]
    assert len(folder.split("test", limit=99)) == 2
    with pytest.raises(DataError, match="train"):
        folder.split("train")


def test_lost_evidence_is_kept_and_reported_once(tmp_path, caplog):
    gold = [["a"], ["gone"], ["a#0-4"], ["a#0-10"], ["a#5-11"], ["a#4-4"], ["a", "b#9-3"], ["gone#0-1"]]
    queries = [QUERY | {"id": f"q{i}", "gold": names} for i, names in enumerate(gold)]
    with caplog.at_level(logging.WARNING, logger="corag"):
        folder = DataFolder.open(write(tmp_path, queries=queries))
    assert [list(query.gold) for query in folder.queries] == gold
    (record,) = caplog.records
    assert "the evidence of 5 questions is not in the corpus (first: q1)" in record.message


PASSAGES = [
    {"_id": "d1", "title": "One", "text": "Text of one.", "metadata": {"url": "http://h"}},
    {"_id": "d 2", "title": "", "text": "Text of two."},
    {"_id": 3, "text": "Text of three."},
]
QUESTIONS = [{"_id": f"q{number}", "text": f"What is {number}?", "metadata": {}} for number in range(4)]
HEADING = "query-id\tcorpus-id\tscore\n"


def write_beir(folder, qrels, passages=PASSAGES, questions=QUESTIONS):
    """Write a BEIR folder; `qrels` are the files' texts by split."""
    write(folder, passages, questions, gz=True)
    (folder / "qrels").mkdir()
    for split, text in qrels.items():
        (folder / "qrels" / f"{split}.tsv.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def test_a_beir_folder_is_a_data_folder(tmp_path):
    test = HEADING + "q1\td1\t2\nq1\td 2\t0\nq1\t3\t1\nq0\td 2\t-1\n\n"
    folder = DataFolder.open(write_beir(tmp_path, {"test": test, "train": HEADING + "q2\t3\t1\n"}))
    assert list(folder.documents.values()) == [
        Document("d1", "Text of one.", "One"), Document("d 2", "Text of two."), Document("3", "Text of three."),
    ]  # fmt: skip
    # A question that nobody judged is left out.
    assert [(one.id, one.split, one.gold) for one in folder.queries] == [
        ("q1", "test", ("d1", "3")), ("q0", "test", ()), ("q2", "train", ("3",)),
    ]  # fmt: skip
    first = folder.queries[0]
    assert (first.question, first.answers, first.candidates) == ("What is 1?", (), None)
    assert first.grades == first.relevance == {"d1": 2, "d 2": 0, "3": 1}


@pytest.mark.parametrize(
    "text",
    [
        "q1\td1\n", HEADING + "q1\td1\thigh\n", HEADING + "q1\td1\t1\nq1\td1\t2\n", HEADING + "q9\td1\t1\n", HEADING,
    ],
)  # fmt: skip
def test_broken_judgements_are_named(tmp_path, text):
    write_beir(tmp_path, {})
    (tmp_path / "qrels" / "test.tsv").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(DataError, match=r"test\.tsv"):
        DataFolder.open(tmp_path)


def test_a_passage_or_a_span_of_it_by_name():
    documents = {"a": Document("a", "Text of a.", "A"), "b#0-4": Document("b#0-4", "Odd.", "")}
    whole, span = passage_at("a", documents), passage_at("a#5-7", documents)
    assert (whole.text, span.id, span.text) == ("A\nText of a.", "a#5-7", "A\nof")
    assert dict(span.metadata) == {"document": "a", "title": "A", "start": 5, "end": 7}
    assert passage_at("b#0-4", documents).text == "Odd."
    assert [passage_at(name, documents) for name in ("c", "a#5-70", "a#7-5", "c#0-1")] == [None] * 4


def test_a_path_wins_over_the_own_folder_and_that_over_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CORAG_DATA", str(tmp_path / "mine"))
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    cached = data_cache() / "squad"
    cached.mkdir(parents=True)
    assert find_data("squad") == cached
    own = tmp_path / "mine" / "squad"
    own.mkdir(parents=True)
    assert find_data("squad") == own
    Path("squad").mkdir()
    assert find_data("squad") == Path("squad")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_data(own) == find_data("~/mine/squad") == own
    with pytest.raises(DataError, match="no file or folder '~nobody/squad'"):
        find_data("~nobody/squad")


def test_the_history_stays_as_it_is_and_earlier_questions_are_put_before_if_asked(tmp_path):
    turns = ["How high is the tower?", "330 metres.", "Who built it?", "Eiffel."]
    rows = [{"id": "a", "question": "It rained in 1990?", "history": turns}, {"id": "b", "question": "Alone?"}]
    asked, alone = DataFolder.open(write(tmp_path, queries=rows)).queries
    assert (asked.question, asked.history) == ("It rained in 1990?", tuple(turns))
    assert asked.after("none") == asked and alone.after("all") == alone
    assert asked.after("last").question == "Who built it?\nIt rained in 1990?"
    assert asked.after("all").question == "How high is the tower?\nWho built it?\nIt rained in 1990?"
