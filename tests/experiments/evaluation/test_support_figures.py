"""Figures below the passage: supporting sentences held, and answers in the text that the reader gets."""

import pytest

from corag.text.data import DataFolder, Query
from corag.text.documents import Document, passage
from corag.text.units import Unit, units
from experiments.evaluation.comparison import evaluate
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.support import Support, stands_in
from experiments.run.tables import figures_of, remarks, show
from tests.experiments.worlds import write_folder

LAKE = Document("lake", "It is cold. The lake is 40 metres deep. Fish live in it.", "Lake Oro")
MILL = Document("mill", "The mill stands by the lake. It burnt down in 1931.", "Old mill")
DOCUMENTS = {document.id: document for document in (LAKE, MILL)}
ROWS = [{"id": one.id, "title": one.title, "text": one.text} for one in DOCUMENTS.values()]


def query(answers=("40 metres",), gold=("lake", "mill"), **extra):
    return Query("q", "How deep is the lake by the mill?", tuple(answers), tuple(gold), "test", None, extra)


@pytest.mark.parametrize(
    ("answers", "context", "expected"),
    [
        (["40 metres"], "It is 40 Metres, deep.", True),
        (["the 40 metres!"], "40 metres", True),
        (["40 metres"], "140 metres", False),
        (["40", "forty"], "forty of them", True),
        (["the"], "the lake", False),  # nothing is left of an article
        ([], "the lake", False),
        (["湖泊"], "这个湖泊很深", True),
    ],
)
def test_an_answer_stands_in_a_context(answers, context, expected):
    assert stands_in(answers, context) is expected


def test_figures_of_a_selection_by_hand():
    support = Support.of(query(supporting_facts=[["lake", [1]], ["mill", [0]]]), DOCUMENTS)
    lake, mill = units(passage(LAKE), Unit(1)), units(passage(MILL), Unit(1))
    text = "Lake Oro\nThe lake is 40 metres deep."
    assert support.figures([lake[1], mill[0]], text) == {
        "sentence_recall": 1.0, "full_sentences": 1.0, "answer_in_context": 1.0,
    }  # fmt: skip
    assert support.figures([lake[0], mill[0]], "Lake Oro\nIt is cold.") == {
        "sentence_recall": 0.5, "full_sentences": 0.0, "answer_in_context": 0.0,
    }  # fmt: skip
    assert support.figures([passage(LAKE)], text)["sentence_recall"] == 0.5
    assert support.figures([], "") == {"sentence_recall": 0.0, "full_sentences": 0.0, "answer_in_context": 0.0}


@pytest.mark.parametrize(
    ("given", "figures"),
    [
        (query(), {"answer_in_context"}),
        (query(("yes",)), set()),
        (query(("No.", "yes")), set()),
        (query(()), set()),
        (query(("yes", "40 metres")), {"answer_in_context"}),
        (query(("a sum of 71",)), set()),  # worked out: no context of the evidence holds it
        (query(("a sum of 71",), gold=()), {"answer_in_context"}),
        (query(("Lake Oro",)), {"answer_in_context"}),  # titles are read, too
        (query(("yes",), supporting_facts=[["lake", [1]]]), {"sentence_recall", "full_sentences"}),
    ],
)
def test_which_questions_have_which_figure(given, figures):
    assert set(Support.of(given, DOCUMENTS).figures([], "")) == figures


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    shared = {"gold": ["lake"], "candidates": ["lake", "mill"], "split": "dev"}
    queries = [
        {"id": "1", "question": "How deep is the lake?", "answers": ["40 metres"], **shared},
        {"id": "2", "question": "Is the lake cold?", "answers": ["yes"], **shared},
        {"id": "3", "question": "Who lives in it?", "answers": ["Fish"], **shared, "answer_starts": [40]},
    ]
    return write_folder(tmp_path / "data", ROWS, queries)


def test_sentences_and_passages_are_compared_on_the_same_work(folder, reader, capsys):
    assert DataFolder.open(folder).queries[2].extra == {"answer_starts": [40]}
    methods = "full,naive(reranker=bm25, unit=sentence),none"
    result = evaluate(
        EvaluateConfig(data=str(folder), split="dev", methods=methods, budget=40, reader="first-words", quiet=True)
    )
    full, sentences, none = result["methods"]
    assert (result["queries_with_sentences"], result["queries_with_answer"]) == (1, 2)
    for row in (full, sentences):
        assert row["sentence_recall"] == row["full_sentences"] == row["answer_in_context"] == 1.0
        assert row["evidence_recall"] == row["full_evidence"] == 1.0
    assert none["sentence_recall"] == none["answer_in_context"] == none["evidence_recall"] == 0.0
    # Sentences count as the passage that they were cut from.
    assert full["diff_k"] == sentences["diff_k"] == 1.0
    show(result, "a title")
    printed = capsys.readouterr().out
    assert "sentence recall" in printed and "answer in context" in printed
    told = " ".join(remarks([result]))
    assert "of the 1 of 3 questions with marked sentences" in told and "of the 2 of 3 questions" in told


def test_figures_that_no_question_has_are_left_out_of_tables(tmp_path, folder, reader):
    queries = [{"id": "2", "question": "Is the lake cold?", "answers": ["yes"], "gold": ["lake"], "split": "dev"}]
    data = write_folder(tmp_path, ROWS, [queries[0] | {"candidates": ["lake"]}])
    result = evaluate(
        EvaluateConfig(data=str(data), split="dev", methods="full", budget=40, reader="first-words", quiet=True)
    )
    assert result["methods"][0]["answer_in_context"] is None
    assert not {"answer_in_context", "sentence_recall", "full_sentences"} & figures_of(result).keys()
    assert remarks([result])[1:] == []
