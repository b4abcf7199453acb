import numpy as np
import pytest

from agent import Ranges
from corag.errors import DataError, InputError
from experiments.labels.arrays import LabelledCell, read_labels
from tests.experiments.worlds import label_row, question_row, write_labels

ROWS = [
    label_row("q1", "a", 0.1, cost_tokens=32),
    label_row("q1", "b", 0.2, iterations=5),
    label_row("q2", "b", 0.4, iterations=5, evidence_recall=None),
    label_row("q2", "a", 0.3, evidence_recall=None),
]
QUESTIONS = [question_row("q1", "who?", [1.0, 0.0], group="folder/g"), question_row("q2", "when?", [0.0, 0.5])]


def table(path, rows=ROWS, questions=QUESTIONS, **metadata):
    return str(write_labels(path, rows, questions, **metadata))


def test_a_table_becomes_arrays(tmp_path):
    arrays = read_labels(table(tmp_path / "labels.parquet"))
    assert arrays.ids == ("folder/q1", "folder/q2") and len(arrays) == 2
    assert arrays.group.tolist() == ["folder/g", "folder/q2"]
    assert arrays.configurations == (LabelledCell("a", 2, 0.1, 0.0), LabelledCell("b", 5, 0.1, 0.0))
    np.testing.assert_allclose(arrays.figures["rougeL"], [[0.1, 0.2], [0.3, 0.4]])
    np.testing.assert_allclose(arrays.figures["budget_share"], [[0.5, 50 / 64], [50 / 64, 50 / 64]])
    assert np.isnan(arrays.figures["evidence_recall"]).tolist() == [[False, False], [True, True]]
    assert arrays.ranges == Ranges((2, 5), (0.1, 0.1), (0.0, 0.0))
    assert arrays.grid.reranker.tolist() == [0, 1] and arrays.rerankers == ("a", "b")
    assert (arrays.embedder, arrays.budgets) == ("minilm", (64,))
    np.testing.assert_allclose(arrays.features(("query", "candidates")), [[1, 0, 0.5, 0], [0, 0.5, 0, 0.25]])


def test_readers_and_budgets_are_averaged(tmp_path):
    other = [{**row, "rougeL": row["rougeL"] + 0.2, "budget_tokens": 128} for row in ROWS]
    paths = f"{table(tmp_path / 'one.parquet')}, {table(tmp_path / 'two.parquet', other[::-1])}"
    arrays = read_labels(paths)
    np.testing.assert_allclose(arrays.figures["rougeL"], [[0.2, 0.3], [0.4, 0.5]])
    assert arrays.budgets == (64, 128) and len(arrays.metadata) == 2
    np.testing.assert_allclose(arrays.figures["budget_share"][0, 0], (32 / 64 + 32 / 128) / 2)


def test_tables_of_other_questions_stand_below_each_other(tmp_path):
    more = [{**row, "data": "more"} for row in ROWS]
    questions = [{**row, "data": "more", "group": "more/g"} for row in QUESTIONS]
    arrays = read_labels(f"{table(tmp_path / 'one.parquet')},{table(tmp_path / 'two.parquet', more, questions)}")
    assert arrays.ids == ("folder/q1", "folder/q2", "more/q1", "more/q2")
    assert arrays.of(arrays.data == "more").group.tolist() == ["more/g", "more/g"]


def test_questions_that_failed_are_left_out_with_a_warning(tmp_path, caplog):
    failed = [{**ROWS[0], "error": "ReaderError: no answer", "rougeL": None, "f1": None}, *ROWS[1:]]
    assert read_labels(table(tmp_path / "failed.parquet", failed)).ids == ("folder/q2",)
    assert "1 of 2 questions failed and are left out: ReaderError: no answer" in caplog.text
    assert read_labels(table(tmp_path / "lacking.parquet", ROWS[:-1])).ids == ("folder/q1",)
    assert "configurations are missing" in caplog.text


def test_questions_without_a_figure_are_left_out_with_a_warning(tmp_path, caplog):
    arrays = read_labels(table(tmp_path / "labels.parquet"))
    assert arrays.having(["rougeL"]).ids == arrays.ids
    assert arrays.having(["rougeL", "evidence_recall"]).ids == ("folder/q1",)
    assert "1 of 2 questions have no rougeL and evidence_recall and are left out" in caplog.text
    with pytest.raises(InputError, match=r"metric 'bleu' is no figure of the labels; their figures are .*rougeL"):
        arrays.having(["bleu"])
    with pytest.raises(DataError, match="no question has the figure evidence_recall"):
        arrays.of([1]).having(["evidence_recall"])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"embedder": "bge-m3"}, "vectors by the embedder 'bge-m3', .*one.parquet by 'minilm'; label both"),
        ({"settings": {"choice": "value-minus-cost"}}, "picked by 'value-minus-cost' in .*two.parquet, by 'value' in"),
        ({"format_version": 1}, "two.parquet.*has format_version 1, this version reads 2"),
        ({"rows": [label_row("q1", "a", 0.1)]}, r"measure different configurations \(1 and 2\)"),
        ({"rows": [*ROWS, label_row("q3", "a", 0.1)]}, "question 'folder/q3' has no line in the table of questions"),
        ({"rows": [{**ROWS[0], "rougeL": float("nan")}, *ROWS[1:]]}, "rougeL of question 'q1' is nan"),
        ({"questions": [QUESTIONS[0], question_row("q2", "?", [1.0])]}, "query_vector has 1 and 2 numbers"),
        (
            {"rows": [{**row, "error": "E: x"} for row in ROWS]},
            "no question has every configuration; the first error: E: x",
        ),
    ],
)
def test_tables_that_do_not_go_together(tmp_path, second, message):
    first, second = table(tmp_path / "one.parquet"), table(tmp_path / "two.parquet", **second)
    paths = second if "no question" in message or "numbers" in message else f"{first},{second}"
    with pytest.raises(DataError, match=message):
        read_labels(paths)


def test_labels_tell_how_their_answers_were_picked(tmp_path):
    assert read_labels(table(tmp_path / "old.parquet")).choice == "value"
    new = table(tmp_path / "new.parquet", settings={"choice": "value-minus-cost"})
    assert read_labels(new).choice == "value-minus-cost"


def test_no_table_at_all():
    with pytest.raises(InputError, match="labels is empty"):
        read_labels(" , ")
    with pytest.raises(DataError, match=r"nowhere.parquet does not exist; make a label table with"):
        read_labels("nowhere.parquet")
