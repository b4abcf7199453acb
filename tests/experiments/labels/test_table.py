"""The label table: its columns, its reader, and what it refuses."""

import pytest

from corag.errors import DataError
from experiments.labels.table import read_labels
from tests.experiments.worlds import label_row, question_row, write_labels

ROWS = [
    label_row("q1", "a", 0.5),
    label_row("q1", "b", 0.25, iterations=5, cost_tokens=32),
    label_row("q2", "a", 0.0),
    label_row("q2", "b", 1.0, iterations=5),
]
QUESTIONS = [question_row("q1", "one?", [1.0, 0.0]), question_row("q2", "two?", [0.0, 1.0], split="dev")]


def test_a_table_becomes_arrays(tmp_path):
    labels = read_labels(str(write_labels(tmp_path / "l.parquet", ROWS, QUESTIONS)))
    assert labels.ids == ("folder/q1", "folder/q2")
    assert labels.split.tolist() == ["train", "train"]
    assert labels.measures["f1"].tolist() == [[0.5, 0.25], [0.0, 1.0]]
    assert labels.measures["cost_tokens"].tolist() == [[50, 32], [50, 50]]
    assert labels.query_vectors.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert labels.features(("query", "curve")).shape == (2, 14)
    assert labels.of([1]).ids == ("folder/q2",)
    assert labels.budgets == (64,)


def test_a_question_under_two_budgets_is_two_questions(tmp_path):
    small = write_labels(tmp_path / "small.parquet", [{**row, "budget_tokens": 32} for row in ROWS], QUESTIONS)
    large = write_labels(tmp_path / "large.parquet", ROWS, QUESTIONS)
    labels = read_labels(f"{small},{large}")
    assert labels.ids == ("folder/q1@32", "folder/q2@32", "folder/q1@64", "folder/q2@64")
    assert (labels.budget.tolist(), labels.budgets) == ([32, 32, 64, 64], (32, 64))
    # Both are on one side of a division.
    assert labels.group.tolist() == ["folder/q1", "folder/q2"] * 2


def test_a_grid_becomes_classes_and_settings(tmp_path):
    rows = [label_row("q1", name, 0.5, iterations=count) for name in ("a", "b") for count in (2, 5)]
    classes = read_labels(str(write_labels(tmp_path / "l.parquet", rows, QUESTIONS[:1]))).classes()
    assert classes.names == ("corag(unit=passage, reranker=a)", "corag(unit=passage, reranker=b)")
    assert classes.label.tolist() == [0, 0, 1, 1]
    assert classes.settings[:, 0].tolist() == [2, 5, 2, 5]


def test_other_configurations_are_classes_of_their_own(tmp_path):
    rows = [label_row("q1", "a", 0.5, configuration=name) for name in ("corag", "top-k(k=3)")]
    classes = read_labels(str(write_labels(tmp_path / "l.parquet", rows, QUESTIONS[:1]))).classes()
    assert (classes.names, classes.settings) == (("corag", "top-k(k=3)"), None)
    # One cell a reranker has nothing for a second head to predict.
    assert read_labels(str(write_labels(tmp_path / "l.parquet", ROWS, QUESTIONS))).classes().settings is None


def test_readers_are_averaged_and_other_questions_added(tmp_path):
    write_labels(tmp_path / "a.parquet", ROWS, QUESTIONS)
    write_labels(tmp_path / "b.parquet", [{**row, "f1": 1.0} for row in ROWS[:2]], QUESTIONS)
    labels = read_labels(f"{tmp_path / 'a.parquet'},{tmp_path / 'b.parquet'}")
    assert labels.measures["f1"].tolist() == [[0.75, 0.625], [0.0, 1.0]]


def test_questions_that_failed_are_left_out_with_a_warning(tmp_path, caplog):
    rows = [*ROWS[:3], {**ROWS[3], "error": "lost"}]
    assert read_labels(str(write_labels(tmp_path / "l.parquet", rows, QUESTIONS))).ids == ("folder/q1",)
    assert "lost" in caplog.text


def test_a_column_whose_name_was_damaged_is_not_a_missing_one(tmp_path):
    table = write_labels(tmp_path / "l.parquet", ROWS, QUESTIONS)
    content = table.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    table.write_bytes(content[:footer] + content[footer:].replace(b"chunks", b"3hunks", 1))
    with pytest.raises(DataError, match="damaged"):
        read_labels(str(table))


def test_tables_that_do_not_go_together(tmp_path):
    write_labels(tmp_path / "a.parquet", ROWS, QUESTIONS)
    for changes in ({"embedder": "other"}, {"rows": [row for row in ROWS if "=a," in row["configuration"]]}):
        second = write_labels(tmp_path / "b.parquet", **{"rows": ROWS, "questions": QUESTIONS, **changes})
        with pytest.raises(DataError):
            read_labels(f"{tmp_path / 'a.parquet'},{second}")
