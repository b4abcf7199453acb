import itertools
import json

import pyarrow
import pyarrow.parquet
import pytest

import corag
from corag.data import DataFolder
from corag.errors import CoragError, DataError, InputError
from corag.registry import READERS
from corag.selectors.corag import Corag
from corag.tokens import CallableCounter, token_counter
from corag.types import Answer
from experiments.label import FORMAT_VERSION, LabelConfig, label, label_query, read_table, write_table
from experiments.metrics import answer_figures, evidence_figures
from experiments.pools import open_pool
from search import SearchError
from tests.experiments.worlds import DOCUMENTS, QUERIES, label_row, same, write_folder

COLUMNS = {
    "query", "question", "split", "reranker", "iterations", "exploration", "cost_weight", "budget_tokens", "rouge1",
    "rouge2", "rougeL", "f1", "em", "evidence_recall", "evidence_precision", "full_evidence", "cost_tokens", "chunks",
    "orders_scored", "value",
}  # fmt: skip


class Echo:
    """Answers with the context, remembers what it was asked, and may get tired of it."""

    name = "echo"

    def __init__(self):
        self.asked = []
        self.patience = 10**9

    def answer(self, query, context):
        if len(self.asked) >= self.patience:
            raise KeyboardInterrupt
        self.asked.append((query, context))
        return Answer(context)


@pytest.fixture
def reader(monkeypatch):
    reader = Echo()
    monkeypatch.setitem(READERS._parts, "echo", lambda: reader)
    return reader


def config_of(folder, table, **settings):
    return LabelConfig(
        **{
            "data": str(folder),
            "out": str(table),
            "rerankers": "bm25,minilm-maxsim",
            "iterations": "1,3",
            "explorations": "0.1,2.4",
            "cost_weights": "0.3",
            "budget": 48,
            "reader": "echo",
            "quiet": True,
            **settings,
        }
    )


def test_one_row_for_each_question_and_configuration(tmp_path, small_data, reader):
    out = label(config_of(small_data, tmp_path / "new" / "labels.parquet"))
    rows, metadata = read_table(out)
    assert all(set(row) == COLUMNS for row in rows)
    grid = list(itertools.product(["bm25", "minilm-maxsim"], [0.1, 2.4], [0.3], [1, 3]))
    found = [(r["query"], r["reranker"], r["exploration"], r["cost_weight"], r["iterations"]) for r in rows]
    assert found == [(f"q{number}", *settings) for number in range(1, 10) for settings in grid]
    assert {row["split"] for row in rows[: 5 * 8]} == {"train"} and {row["split"] for row in rows[5 * 8 :]} == {"dev"}
    assert all(0 < row["cost_tokens"] <= row["budget_tokens"] == 48 for row in rows)
    assert {row["evidence_recall"] for row in rows if row["query"] == "q9"} == {None}  # it has no gold
    assert metadata["format_version"] == FORMAT_VERSION
    assert metadata["embedder"] == "minilm"
    assert metadata["settings"]["iterations"] == "1,3" and "out" not in metadata["settings"]
    assert "corag" in metadata["versions"]
    assert [path.name for path in out.parent.iterdir()] == ["labels.parquet"]


COUNTERS = {
    "minilm": token_counter(),
    "words": CallableCounter(lambda text: len(text.split())),
    "joined text costs more": CallableCounter(lambda text: len(text.split()) + 9 * text.count(".\n\n")),
    "long text costs more": CallableCounter(lambda text: len(text.split()) + (30 if len(text) > 150 else 0)),
}


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("budget_tokens", [1, 48, 70])
def test_orders_are_those_of_the_selector_with_the_same_settings(small_data, reader, counter, budget_tokens):
    tokens = COUNTERS[counter]
    folder = DataFolder.open(small_data)
    queries = folder.queries[:2]
    pool = open_pool(folder, queries, corag.embedder(), quiet=True)
    rerankers = {name: corag.reranker(name) for name in ("bm25", "minilm-maxsim")}
    grid = config_of("", "", iterations="1,2,5", explorations="0,0.6", cost_weights="0,0.5").grid()
    for query in queries:
        reader.asked = []
        rows = list(label_query(query, pool, list(rerankers.values()), grid, reader, budget_tokens, tokens))
        assert len(rows) == len(grid) == 24
        texts = set()
        for row in rows:
            selection = Corag(
                reranker=rerankers[row["reranker"]],
                policy="paper",
                iterations=row["iterations"],
                exploration=row["exploration"],
                cost_weight=row["cost_weight"],
                tokens=tokens,
            ).select(query.question, pool.candidates(query), budget_tokens)
            texts.add(selection.text)
            expected = {
                "chunks": len(selection),
                "cost_tokens": selection.cost_tokens,
                "value": selection.value,
                **answer_figures(selection.text, query.answers),
                **evidence_figures(selection.chunks, query.gold),
            }
            assert same({name: row[name] for name in expected}, expected)
            if counter == "minilm":  # under the others the selector may search again
                assert row["orders_scored"] == selection.trace.get("orders_scored", 0)
        # Each context is read once, and no other is.
        assert sorted(text for _, text in reader.asked) == sorted(texts)


def test_counts_of_iterations_equal_runs_of_their_own(tmp_path, small_data, reader):
    together, _ = read_table(label(config_of(small_data, tmp_path / "all.parquet", iterations="4,1,2")))
    for count in (1, 2, 4):
        alone, _ = read_table(label(config_of(small_data, tmp_path / f"{count}.parquet", iterations=f"{count}")))
        assert same([row for row in together if row["iterations"] == count], alone)


@pytest.mark.parametrize("patience", [0, 2, 13])
def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, small_data, reader, patience):
    whole = label(config_of(small_data, tmp_path / "whole.parquet"))
    num_asked, reader.asked, reader.patience = len(reader.asked), [], patience
    broken = config_of(small_data, tmp_path / "broken.parquet")
    with pytest.raises(KeyboardInterrupt):
        label(broken)
    lines = (tmp_path / "broken.journal.jsonl").read_text().splitlines()
    done = {
        question for question, _ in reader.asked if question in {row["question"] for row in QUERIES[: len(lines) - 1]}
    }
    before, reader.patience = len(reader.asked), 10**9
    rows, metadata = read_table(label(broken))
    expected, expected_metadata = read_table(whole)
    assert same(rows, expected)
    assert metadata == expected_metadata
    assert not done & {question for question, _ in reader.asked[before:]}
    assert len(reader.asked[before:]) + sum(question in done for question, _ in reader.asked[:before]) == num_asked
    assert not list(tmp_path.glob("*journal*"))


def test_a_complete_table_is_not_made_again_unless_something_changed(tmp_path, reader, caplog):
    data, out = write_folder(tmp_path / "data"), tmp_path / "labels.parquet"

    def run(**settings):
        reader.asked = []
        with caplog.at_level("INFO"):
            label(config_of(data, out, splits="test", **settings))
        return len(reader.asked) > 0, out.stat().st_mtime_ns

    made, first = run()
    assert made
    assert run() == (False, first)
    assert "labels.parquet is complete already" in caplog.text
    assert run(budget=30)[0]
    assert run()[0]
    write_folder(data, [*DOCUMENTS[:-1], DOCUMENTS[-1] | {"text": "Salt bread is made of other things."}])
    assert run()[0]
    assert not run()[0]
    out.write_bytes(b"no table")
    assert run()[0]


def test_rows_can_be_read_by_other_programs(tmp_path, small_data, reader):
    out = label(config_of(small_data, tmp_path / "labels.parquet", splits="test", limit=1))
    table = pyarrow.parquet.read_table(out)
    assert table.num_rows == 8
    assert table.schema.field("iterations").type == pyarrow.int64()
    assert table.schema.field("rougeL").type == pyarrow.float64()
    assert json.loads(table.schema.metadata[b"corag"])["settings"]["limit"] == 1


def test_a_question_without_candidates_gets_empty_selections(tmp_path, reader):
    data = write_folder(tmp_path, DOCUMENTS, [QUERIES[0] | {"candidates": []}, QUERIES[1]])
    rows, _ = read_table(label(config_of(data, tmp_path / "labels.parquet", splits="train")))
    empty = [row for row in rows if row["query"] == "q1"]
    assert len(empty) == 8
    assert all(row["chunks"] == row["cost_tokens"] == row["orders_scored"] == row["rougeL"] == 0 for row in empty)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"iterations": "1,two"}, "iterations is '1,two': invalid literal.*; give values separated by commas"),
        ({"iterations": "1.5"}, "iterations is '1.5': invalid literal"),
        ({"explorations": "a"}, "explorations is 'a': could not convert"),
        ({"cost_weights": ""}, "cost_weights is ''; give at least one value"),
        ({"rerankers": " , "}, "rerankers is ' , '; give at least one value"),
        ({"splits": ""}, "splits is ''; give at least one value"),
        ({"rerankers": "bm25,best"}, "reranker 'best' is unknown; the names are"),
        ({"splits": "train,validation"}, "no question of split 'validation'; its splits are train"),
        ({"budget": 0}, "budget_tokens must be a whole number of at least 1, got 0"),
        ({"out": "."}, "no name for a file"),
        ({"reader": "best"}, "reader 'best' is unknown"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, small_data, reader, settings, message):
    with pytest.raises(CoragError, match=message):
        label(config_of(small_data, tmp_path / "labels.parquet", **settings))
    assert not list(tmp_path.iterdir()) and not reader.asked


@pytest.mark.parametrize("settings", [{"iterations": "0"}, {"explorations": "-1"}, {"cost_weights": "nan"}])
def test_what_the_search_would_refuse_is_refused_before_the_work(tmp_path, small_data, reader, settings):
    with pytest.raises(SearchError):
        label(config_of(small_data, tmp_path / "labels.parquet", **settings))
    assert not list(tmp_path.iterdir()) and not reader.asked


@pytest.mark.parametrize("settings", [{"limit": 0}, {"num_candidates": 0}])
def test_numbers_that_cannot_be_are_refused(settings):
    with pytest.raises(InputError, match="must be at least 1, got 0"):
        LabelConfig("data", "out", **settings)


def test_grids_have_no_doubles_and_rising_counts():
    grid = config_of("", "", iterations=" 5, 2,5,,1", rerankers="a, b,a", explorations="0.50,0.5").grid()
    assert (grid.iterations, grid.rerankers, grid.explorations) == ((1, 2, 5), ("a", "b"), (0.5,))
    assert len(grid) == 6


def test_a_table_that_cannot_be_read_says_why(tmp_path):
    file = tmp_path / "labels.parquet"
    with pytest.raises(DataError, match=r"labels.parquet does not exist; make a label table with: corag label"):
        read_table(file)
    file.write_bytes(b"PAR1 hello")
    with pytest.raises(DataError, match=r"labels.parquet is not a label table .*; make one with"):
        read_table(file)
    pyarrow.parquet.write_table(pyarrow.table({"query": ["q"]}), file)
    with pytest.raises(DataError, match="is not a label table"):
        read_table(file)
    write_table(file, [label_row("q", "bm25", 0.5)], {"format_version": 99})
    with pytest.raises(DataError, match="has format_version 99, this version reads 1; label again, or update corag"):
        read_table(file)
    write_table(file, [], {"format_version": FORMAT_VERSION})
    with pytest.raises(DataError, match="has no rows; label at least one question"):
        read_table(file)


def test_tables_survive_the_round_trip(tmp_path):
    rows = [label_row("q é😀", "bm25", 1 / 3), label_row("q2", "bm25", 0.1, evidence_recall=None)]
    write_table(tmp_path / "labels", rows, {"format_version": FORMAT_VERSION, "note": "é"})
    assert read_table(tmp_path / "labels") == (rows, {"format_version": FORMAT_VERSION, "note": "é"})
