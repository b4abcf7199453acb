"""BEIR folders and graded judgements."""

import gzip
import logging

import pytest

from corag.errors import DataError
from corag.text.data import DataFolder, passage_at, read_corpus
from corag.text.documents import Document
from tests.corag.text.test_data import QUERY, write

PASSAGES = [
    {"_id": "d1", "title": "One", "text": "Text of one.", "metadata": {"url": "http://h"}},
    {"_id": "d 2", "title": "", "text": "Text of two."},
    {"_id": 3, "text": "Text of three."},
]
QUESTIONS = [{"_id": f"q{number}", "text": f"What is {number}?", "metadata": {}} for number in range(4)]
HEADING = "query-id\tcorpus-id\tscore\n"


def write_beir(folder, qrels, passages=PASSAGES, questions=QUESTIONS, *, gz=False):
    """Write a BEIR folder; `qrels` are the files' texts by split."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    write(folder, passages, questions, gz=gz)
    for split, text in qrels.items():
        if gz:
            (folder / "qrels" / f"{split}.tsv.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / "qrels" / f"{split}.tsv").write_text(text)
    return folder


@pytest.mark.parametrize("gz", [False, True], ids=["plain", "gz"])
def test_a_beir_folder_is_a_data_folder(tmp_path, gz):
    test = HEADING + "q1\td1\t2\nq1\td 2\t0\nq1\t3\t1\nq0\td 2\t-1\n\n"
    folder = DataFolder.open(write_beir(tmp_path, {"test": test, "train": HEADING + "q2\t3\t1\n"}, gz=gz))
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
    assert [one.id for one in folder.split("test")] == ["q1", "q0"]
    with pytest.raises(DataError, match=r"no question of split 'dev'; its splits are test \(2\), train \(1\)"):
        folder.split("dev")


def test_a_question_may_be_in_two_splits_and_a_heading_may_be_missing(tmp_path):
    folder = DataFolder.open(write_beir(tmp_path, {"dev": "q1\td1\t1\n", "test": "q1\t3\t1\r\n"}))
    assert [(one.id, one.split, one.gold) for one in folder.queries] == [("q1", "dev", ("d1",)), ("q1", "test", ("3",))]


def test_without_judgements_all_questions_are_read(tmp_path):
    folder = DataFolder.open(write_beir(tmp_path, {}))
    assert [(one.id, one.split, one.gold) for one in folder.queries] == [(f"q{n}", "all", ()) for n in range(4)]


def test_judged_passages_may_be_missing_from_the_corpus(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="corag"):
        folder = DataFolder.open(write_beir(tmp_path, {"test": "q1\tgone\t1\nq1\tlost\t0\nq2\tlost\t0\n"}))
    assert "the evidence of 1 questions is not in the corpus (first: q1)" in caplog.records[0].message
    assert folder.queries[0].gold == ("gone",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("q1\td1\n", "line 1: 2 columns; a line has three, between tabs"),
        (HEADING + "q1 d1 1\n", "line 2: 1 columns"),
        (HEADING + "q1\td1\thigh\n", "line 2: the grade is no whole number"),
        (HEADING + "q1\td1\t0.5\n", "line 2: the grade is no whole number"),
        (HEADING + "\td1\t1\n", "line 2: an id is empty"),
        (
            HEADING + "q1\td1\t1\nq1\td1\t1\nq1\td1\t2\n",
            "line 4: passage 'd1' has the grades 1 and 2 for question 'q1'",
        ),
        (HEADING + "q9\td1\t1\n", r" question 'q9' is not in queries\.jsonl; add it there"),
        (HEADING, " holds no judgement"),
        (HEADING + "q1\t\ud83d\t1\n", "line 2: not UTF-8"),
    ],
)
def test_broken_judgements_are_named(tmp_path, text, reason):
    write_beir(tmp_path, {"test": ""})
    (tmp_path / "qrels" / "test.tsv").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(DataError, match=rf"test\.tsv[:,]? ?{reason}"):
        DataFolder.open(tmp_path)


def test_a_broken_line_of_beir_is_named(tmp_path):
    for passages, reason in (
        ([{"_id": "", "text": "a"}], "line 1: field 'id' is empty"),
        ([{"_id": "a"}], "line 1: field 'text' is missing; the fields here are id"),
        ([PASSAGES[0], PASSAGES[0]], "line 2: id 'd1' is already used in line 1"),
    ):
        write_beir(tmp_path, {}, passages)
        with pytest.raises(DataError, match=reason):
            read_corpus(tmp_path)
    write_beir(tmp_path, {}, questions=[{"_id": "q", "title": "no text"}])
    with pytest.raises(DataError, match=r"queries\.jsonl, line 1: field 'question' is missing"):
        DataFolder.open(tmp_path)


def test_grades_of_a_data_folder_of_our_own(tmp_path):
    queries = [
        QUERY | {"gold": None, "grades": {"a": 2, "b": 0}},
        QUERY | {"id": "q2", "gold": ["b", "a"], "grades": {"a": 3}},
        QUERY | {"id": "q3"},
    ]
    found = DataFolder.open(write(tmp_path, queries=queries)).queries
    assert [one.gold for one in found] == [("a",), ("b", "a"), ("a",)]
    assert [one.relevance for one in found] == [{"a": 2, "b": 0}, {"b": 1, "a": 3}, {"a": 1}]
    for grades in ([1], {"a": "2"}, {"a": 1.5}, {"a": True}):
        write(tmp_path, queries=[QUERY | {"grades": grades}])
        with pytest.raises(DataError, match=r"line 1: field 'grades' is .* it must map ids to whole numbers"):
            DataFolder.open(tmp_path)


def test_a_passage_or_a_span_of_it_by_name():
    documents = {"a": Document("a", "Text of a.", "A"), "b#0-4": Document("b#0-4", "Odd.", "")}
    whole, span = passage_at("a", documents), passage_at("a#5-7", documents)
    assert (whole.text, span.id, span.text) == ("A\nText of a.", "a#5-7", "A\nof")
    assert dict(span.metadata) == {"document": "a", "title": "A", "start": 5, "end": 7}
    assert passage_at("b#0-4", documents).text == "Odd."
    assert [passage_at(name, documents) for name in ("c", "a#5-70", "a#7-5", "c#0-1")] == [None] * 4
