import itertools
import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import corag
from corag.errors import CoragError, DataError, InputError, ModelError, ReaderError
from corag.registry import READERS
from corag.selectors.corag.selector import Corag
from corag.text.data import DataFolder
from corag.text.tokens import CallableCounter
from corag.types import Answer
from experiments.data.config import CandidateSettings
from experiments.data.pools import open_pool
from experiments.data.splits import held_out
from experiments.evaluation.metrics import answer_figures, evidence_figures
from experiments.labels.config import LabelConfig, LabelSource
from experiments.labels.examples import read_examples
from experiments.labels.label import label
from experiments.labels.question import Labeller
from experiments.labels.table import (
    FORMAT_VERSION,
    merge_tables,
    questions_path,
    read_questions,
    read_table,
    write_questions,
    write_table,
)
from experiments.labels.work import total
from search import SearchError
from tests.corag.models.worlds import save_bert
from tests.experiments.labels.label_tables import tables, timeless
from tests.experiments.worlds import DOCUMENTS, QUERIES, label_row, same, write_folder

COLUMNS = {
    "data", "query", "split", "reranker", "iterations", "exploration", "cost_weight", "budget_tokens", "rouge1",
    "rouge2", "rougeL", "f1", "em", "confidence", "evidence_recall", "evidence_precision", "full_evidence",
    "cost_tokens", "chunks", "orders_scored", "latency_ms", "value", "context", "error",
}  # fmt: skip


class Echo:
    """Answers with the context, remembers what it was asked, and may get tired of it."""

    name = "echo"

    def __init__(self):
        self.asked = []
        self.patience = 10**9
        self.cannot_read = {}

    def answer(self, query, context):
        if len(self.asked) >= self.patience:
            raise KeyboardInterrupt
        if query in self.cannot_read:
            raise self.cannot_read[query]
        self.asked.append((query, context))
        return Answer(context)


@pytest.fixture
def reader(monkeypatch):
    reader = Echo()
    monkeypatch.setitem(READERS.parts, "echo", lambda: reader)
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
    assert sorted(path.name for path in out.parent.iterdir()) == ["labels.parquet", "labels.questions.parquet"]


def test_one_row_for_each_question(tmp_path, small_data, reader):
    out = label(config_of(small_data, tmp_path / "labels.parquet", splits="train,test"))
    questions, metadata = read_questions(out)
    assert metadata == read_table(out)[1]
    assert [row["query"] for row in questions] == [f"q{number}" for number in (1, 2, 3, 4, 5, 10, 11, 12)]
    first, embedder = questions[0], corag.embedder()
    name = small_data.name
    assert (first["data"], first["split"], first["num_candidates"]) == (name, "train", 6)
    assert first["question"] == QUERIES[0]["question"]
    # q1 needs varn and tolmere, q11 mayor and varn: they go together; q3 and q4 do not meet, for q3 needs no cobalt.
    groups = {row["query"]: row["group"] for row in questions}
    assert groups["q1"] == groups["q11"] and len(set(groups.values())) == 7
    assert all(group.startswith(f"{name}/") for group in groups.values())
    texts = {row["id"]: f"{row['title']}\n{row['text']}" for row in DOCUMENTS}
    vectors = embedder.embed([texts[candidate] for candidate in QUERIES[0]["candidates"]])
    query = embedder.embed([first["question"]])[0]
    np.testing.assert_allclose(first["similarities"], sorted(vectors @ query, reverse=True), atol=1e-6)
    np.testing.assert_allclose(first["query_vector"], query, atol=1e-3)
    np.testing.assert_allclose(first["candidates_vector"], vectors.mean(axis=0), atol=1e-3)


def test_candidates_may_come_from_a_run(tmp_path, small_data, reader):
    run = tmp_path / "a.run"
    lines = [
        f"{query['id']} Q0 {name} {rank} {9 - rank} t\n"
        for query in QUERIES
        for rank, name in enumerate(query["candidates"][:3], start=1)
    ]
    run.write_text("".join(lines))

    def labelled(out):
        return read_questions(label(config_of(small_data, tmp_path / out, splits="test", run=str(run))))[0]

    first = labelled("labels.parquet")[0]
    # The scores of the run are no cosines; the agent's features are.
    texts = {row["id"]: f"{row['title']}\n{row['text']}" for row in DOCUMENTS}
    query, *vectors = corag.embedder().embed([first["question"], *(texts[one] for one in QUERIES[9]["candidates"][:3])])
    np.testing.assert_allclose(sorted(first["similarities"]), sorted(vectors @ query), atol=1e-6)
    assert first["num_candidates"] == 3
    # Labels of another run are other work.
    run.write_text("".join(lines[::3] + lines[1::3]))
    with pytest.raises(DataError, match="made with other settings, data or versions"):
        labelled("labels.parquet")
    assert labelled("others.parquet")[0]["num_candidates"] == 2


COUNTERS = {
    "minilm": corag.tokens(),
    "words": CallableCounter(lambda text: len(text.split())),
    "joined text costs more": CallableCounter(lambda text: len(text.split()) + 9 * text.count(".\n\n")),
    "long text costs more": CallableCounter(lambda text: len(text.split()) + (30 if len(text) > 150 else 0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize(
    ("budget_tokens", "given"),
    [
        (1, {"choice": "value"}),
        (48, {"choice": "value-minus-cost"}),
        (70, {"choice": "value"}),
        (48, {"preset": "paper"}),
    ],
)
def test_orders_are_those_of_the_selector_with_the_same_settings(small_data, reader, counter, budget_tokens, given):
    tokens = COUNTERS[counter]
    folder = DataFolder.open(small_data)
    queries = folder.queries[:2]
    pool = open_pool(folder, queries, corag.embedder(), CandidateSettings(), quiet=True)
    rerankers = {name: corag.reranker(name) for name in ("bm25", "minilm-maxsim")}
    grid = config_of("-", "", iterations="1,2,5", explorations="0,0.6", cost_weights="0,0.5").grid()
    labeller = Labeller(list(rerankers.values()), grid, reader, corag.embedder(), tokens, budget_tokens, "windows")
    labeller.preset = given.get("preset")
    labeller.settings = {"policy": "paper", **{k: v for k, v in given.items() if k != "preset"}}
    for query in queries:
        reader.asked = []
        rows = labeller.label(query, pool)["rows"]
        assert len(rows) == len(grid) == 24
        texts = set()
        for row in rows:
            selection = Corag(
                reranker=rerankers[row["reranker"]],
                preset=labeller.preset,
                search={**labeller.settings, "iterations": row["iterations"], "exploration": row["exploration"]},
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
                assert row["orders_scored"] == selection.trace.orders_scored
        # Each context is read once, and no other is.
        assert sorted(text for _, text in reader.asked) == sorted(texts)


def test_a_preset_labels_with_its_search_on_logits(small_data, tmp_path, reader):
    settings = {"preset": "paper", "rerankers": f"cross-encoder(model={save_bert(tmp_path / 'bert')}, backend=torch)"}
    labeller = Labeller.of(config_of(small_data, tmp_path / "labels.parquet", **settings))
    assert labeller.rerankers[0].output == "logit"
    assert (labeller.preset, labeller.settings) == ("paper", {"policy": "paper"})
    plain = Labeller.of(config_of(small_data, tmp_path / "labels.parquet"))
    assert plain.settings == {"policy": "paper", "choice": "value-minus-cost"}


@pytest.mark.slow
def test_counts_of_iterations_equal_runs_of_their_own(tmp_path, small_data, reader):
    together, _ = read_table(label(config_of(small_data, tmp_path / "all.parquet", iterations="4,1,2")))
    for count in (1, 2, 4):
        alone, _ = read_table(label(config_of(small_data, tmp_path / f"{count}.parquet", iterations=f"{count}")))
        assert timeless(row for row in together if row["iterations"] == count) == timeless(alone)


@pytest.mark.slow
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
    assert tables(label(broken)) == tables(whole)
    assert not done & {question for question, _ in reader.asked[before:]}
    assert len(reader.asked[before:]) + sum(question in done for question, _ in reader.asked[:before]) == num_asked
    assert not list(tmp_path.glob("*journal*"))


@pytest.mark.slow
def test_a_complete_table_is_neither_made_again_nor_overwritten(tmp_path, reader, caplog):
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
    content = out.read_bytes()
    with pytest.raises(DataError, match="holds labels made with other settings, data or versions; choose"):
        run(budget=30)
    write_folder(data, [*DOCUMENTS[:-1], DOCUMENTS[-1] | {"text": "Salt bread is made of other things."}])
    with pytest.raises(DataError, match="or delete it to label anew"):
        run()
    assert out.read_bytes() == content
    out.unlink()
    assert run()[0]
    assert not run()[0]
    out.write_bytes(out.read_bytes()[:100])
    assert run()[0]


def test_rows_can_be_read_by_other_programs(tmp_path, small_data, reader):
    out = label(config_of(small_data, tmp_path / "labels.parquet", splits="test", limit=1))
    table = pyarrow.parquet.read_table(out)
    assert table.num_rows == 8
    assert table.schema.field("iterations").type == pyarrow.int64()
    assert table.schema.field("rougeL").type == pyarrow.float64()
    assert json.loads(table.schema.metadata[b"corag"])["settings"]["limit"] == 1


@pytest.mark.parametrize("shards", [[""], ["1/2", "2/2"]])
def test_a_question_without_candidates_gets_empty_selections(tmp_path, reader, shards):
    data = write_folder(tmp_path, DOCUMENTS, [QUERIES[0] | {"candidates": []}, QUERIES[1]])
    for shard in shards:
        out = label(config_of(data, tmp_path / "labels.parquet", splits="train", shard=shard))
    rows, _ = read_table(out)
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
        ({"rerankers": " , "}, "rerankers is ' , '; name at least one"),
        ({"splits": ""}, "splits is ''; give at least one value"),
        ({"rerankers": "bm25,best"}, "reranker 'best' is unknown; the names are"),
        ({"splits": "train,validation"}, "no question of split 'validation'; its splits are train"),
        ({"budget": 0}, "budget must be a whole number of at least 1, got 0"),
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
        LabelConfig(data="data", out="out", **settings)


def test_grids_have_no_doubles_and_rising_counts():
    grid = config_of("-", "", iterations=" 5, 2,5,,1", rerankers="a, b,a", explorations="0.50,0.5").grid()
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
    with pytest.raises(DataError, match="has format_version 99, this version reads 2; label again, or update corag"):
        read_table(file)
    write_table(file, [], {"format_version": FORMAT_VERSION})
    with pytest.raises(DataError, match="has no rows; label at least one question"):
        read_table(file)
    for number in (float("nan"), float("inf")):
        write_table(file, [label_row("q1", "bm25", 0.5), label_row("q2", "bm25", number)], {"format_version": 2})
        with pytest.raises(DataError, match=rf"row 2: rougeL of question 'q2' is {number}; figures have to be finite"):
            read_table(file)
    write_table(file, [label_row("q1", "bm25", 0.5)], {"format_version": 2})
    with pytest.raises(DataError, match=r"labels.questions.parquet does not exist; make a label table"):
        read_questions(file)


def test_tables_survive_the_round_trip(tmp_path):
    rows = [label_row("q é😀", "bm25", 1 / 3), label_row("q2", "bm25", 0.1, evidence_recall=None)]
    write_table(tmp_path / "labels", rows, {"format_version": FORMAT_VERSION, "note": "é"})
    assert read_table(tmp_path / "labels") == (rows, {"format_version": FORMAT_VERSION, "note": "é"})


@pytest.mark.slow
def test_several_folders_in_one_table(tmp_path, reader):
    write_folder(tmp_path / "islands")
    moved = [row | {"candidates": None} for row in QUERIES]
    write_folder(tmp_path / "seas", DOCUMENTS, moved)
    sources = (
        LabelSource("islands", "dev", limit=2),
        LabelSource("seas", "train", pool="corpus", num_candidates=4, sample=3),
        LabelSource("seas", "test", pool="document", num_candidates=1),
        LabelSource("seas", "dev", part="held-out", held_out=0.3, pool="corpus", with_gold=True),
    )
    out = label(config_of(tmp_path, tmp_path / "labels.parquet", sources=sources))
    questions, metadata = read_questions(out)
    of_source = [(row["data"], row["split"]) for row in questions]
    counts = {pair: of_source.count(pair) for pair in of_source}
    assert list(counts) == [("islands", "dev"), ("seas", "train"), ("seas", "test"), ("seas", "dev")]
    folder = DataFolder.open(tmp_path / "seas")
    held = held_out(folder, folder.split("dev"), 0.3)
    assert list(counts.values()) == [2, 3, 3, len(held - {"q9"})] and held
    assert {row["query"] for row in questions if (row["data"], row["split"]) == ("seas", "dev")} == held - {"q9"}
    sizes = {
        pair: {r["num_candidates"] for r, p in zip(questions, of_source, strict=True) if p == pair} for pair in counts
    }
    assert list(sizes.values())[:3] == [{6}, {4}, {1}]
    train = [row["query"] for row in questions if row["split"] == "train"]
    assert train == sorted(train)
    rows, _ = read_table(out)
    assert len(rows) == 8 * len(questions)
    assert metadata["settings"]["sources"][1]["sample"] == 3


def test_a_sample_is_not_the_first_questions_and_grows(tmp_path):
    write_folder(tmp_path / "seas", DOCUMENTS, [QUERIES[0] | {"id": f"n{number}"} for number in range(60)])

    def drawn(sample):
        sources = (LabelSource("seas", sample=sample),)
        return [one.query.id for one in read_examples(config_of(tmp_path, "out", sources=sources)).examples]

    few, more = drawn(5), drawn(20)
    assert len(few) == 5 and len(more) == 20 and set(few) < set(more)
    assert few != [f"n{number}" for number in range(5)]
    assert more == sorted(more, key=lambda name: int(name[1:]))


def test_the_same_question_from_two_sources_is_refused(tmp_path, reader):
    write_folder(tmp_path / "seas")
    sources = (LabelSource("seas"), LabelSource("seas", limit=1))
    with pytest.raises(InputError, match="question 'q1' of seas comes from two sources; leave it out of one"):
        label(config_of(tmp_path, tmp_path / "labels.parquet", sources=sources))


@pytest.mark.slow
def test_a_failing_question_is_recorded_and_the_others_go_on(tmp_path, small_data, reader, caplog):
    whole = tables(label(config_of(small_data, tmp_path / "whole.parquet")))
    reader.cannot_read = {QUERIES[2]["question"]: RuntimeError("no tongue")}
    rows, questions, metadata, _ = tables(label(config_of(small_data, tmp_path / "labels.parquet")))
    assert "q3 failed: RuntimeError: no tongue" in caplog.text
    failed = [row for row in rows if row["query"] == "q3"]
    grid = ("reranker", "iterations", "exploration", "cost_weight", "budget_tokens")
    assert len(failed) == 8
    for row, unbroken in zip(failed, (row for row in whole[0] if row["query"] == "q3"), strict=True):
        assert row["error"] == "RuntimeError: no tongue"
        assert [row[name] for name in grid] == [unbroken[name] for name in grid]
        assert {row[name] for name in COLUMNS - {*grid, "data", "query", "split", "error", "latency_ms"}} == {None}
    assert [row for row in rows if row["query"] != "q3"] == [row for row in whole[0] if row["query"] != "q3"]
    assert [row["query_vector"] is None for row in questions] == [row["query"] == "q3" for row in questions]
    assert metadata == whole[2]


def test_a_reader_that_gives_no_number_fails_its_question(tmp_path, small_data, reader, monkeypatch):
    monkeypatch.setattr(reader, "answer", lambda query, context: Answer(context, confidence=float("nan")))
    rows, _ = read_table(label(config_of(small_data, tmp_path / "labels.parquet", limit=1)))
    assert {row["error"] for row in rows} == {
        "InputError: reader 'echo' gave the confidence nan; it has to be a number from 0 to 1, or None"
    }


@pytest.mark.slow
def test_a_reader_with_batches_is_asked_once_a_question(tmp_path, small_data, reader):
    whole = tables(label(config_of(small_data, tmp_path / "whole.parquet")))
    calls = []

    def answer_many(queries, contexts):
        calls.append(queries)
        return [Answer(context, confidence=0.25) for context in contexts]

    reader.answer_many = answer_many
    rows, *_ = tables(label(config_of(small_data, tmp_path / "labels.parquet")))
    assert {row.pop("confidence") for row in rows} == {0.25} and {row.pop("confidence") for row in whole[0]} == {None}
    assert rows == whole[0]
    assert [set(queries) for queries in calls] == [{row["question"]} for row in QUERIES[:9]]


@pytest.mark.slow
@pytest.mark.parametrize("error", [ModelError("gone"), OSError("disk full"), ReaderError("no server")])
def test_what_would_fail_for_every_question_stops_the_run(tmp_path, small_data, reader, error):
    config = config_of(small_data, tmp_path / "labels.parquet")
    reader.cannot_read = {QUERIES[2]["question"]: error}
    with pytest.raises(type(error), match=str(error)):
        label(config)
    assert len((tmp_path / "labels.journal.jsonl").read_text().splitlines()) == 1 + 2
    reader.cannot_read = {}
    assert {row["error"] for row in read_table(label(config))[0]} == {None}


@pytest.mark.slow
def test_equal_contexts_are_read_once_and_have_equal_hashes(tmp_path, small_data, reader):
    rows, metadata = read_table(label(config_of(small_data, tmp_path / "labels.parquet", iterations="1,2,3,9")))
    hashes = {(row["query"], row["context"]) for row in rows}
    assert len(hashes) == len(reader.asked) == metadata["tokens"]["contexts"] < len(rows) / 3
    for query, context in hashes:
        equals = [row for row in rows if (row["query"], row["context"]) == (query, context)]
        assert len({(row["rougeL"], row["cost_tokens"], row["chunks"]) for row in equals}) == 1


@pytest.mark.slow
def test_latency_grows_with_iterations_and_is_charged_for_what_was_remembered(tmp_path, small_data, reader):
    settings = {"rerankers": "minilm-cosine", "iterations": "1,2,4,8", "limit": 2}
    rows, _ = read_table(label(config_of(small_data, tmp_path / "labels.parquet", **settings)))
    for _, group in itertools.groupby(rows, key=lambda row: (row["query"], row["exploration"])):
        latencies = [row["latency_ms"] for row in group]
        assert latencies == sorted(latencies) and latencies[0] > 0
    # The second c finds every value remembered, and costs about as much all the same.
    first, second = (np.median([r["latency_ms"] for r in rows if r["exploration"] == c]) for c in (0.1, 2.4))
    assert second > first / 10


@pytest.mark.slow
def test_work_is_counted_by_hand(tmp_path, reader):
    documents = [
        {"id": "a", "title": "", "text": "one two three four"},  # 4 tokens, and 2 special ones for the encoder
        {"id": "b", "title": "", "text": "five six"},  # 2 tokens
    ]
    query = {"id": "q", "question": "one five", "answers": ["x"], "gold": ["a"], "candidates": ["a", "b"]}
    write_folder(tmp_path / "data", documents, [query])

    def tokens(rerankers, budget):
        settings = {"iterations": "1", "explorations": "0", "cost_weights": "0,0.9", "splits": "all"}
        out = tmp_path / f"{rerankers}.parquet"
        config = config_of(tmp_path / "data", out, rerankers=rerankers, budget=budget, **settings)
        return read_table(label(config))[1]["tokens"]

    # One iteration scores a and b: 2 orders of 4 + 2 tokens, each read with the question's 2, for each of two lambdas.
    found = tokens("minilm-maxsim", 4)
    assert found["encoded"] == (2 + 2) + (4 + 2) + (2 + 2)  # question and passages, once
    assert found["independent_encoded"] == 2 * found["encoded"]
    assert found["cross_encoder_joined"] == 2 * (4 + 2 + 2 * 2)
    assert (found["joined"], found["independent_joined"]) == (0, 0)
    assert found["configurations"] == 2
    # minilm-cosine reads joined texts by itself; retrieval still encodes question and passages.
    found = tokens("minilm-cosine", 4)
    assert (found["joined"], found["independent_joined"], found["cross_encoder_joined"]) == (10, 20, 20)
    assert (found["encoded"], found["independent_encoded"]) == (14, 0)
    # bm25 has no model.
    found = tokens("bm25", 4)
    kinds = ("joined", "independent_joined", "cross_encoder_joined", "independent_encoded")
    assert [found[kind] for kind in kinds] == [0, 0, 0, 0]
    # Each lambda chooses a or b: contexts of 4 or 2 tokens, read with the question's 2.
    read = {len(context.split()) for _, context in reader.asked[-1:]}
    assert found["contexts"] == 1 and found["read"] == 2 + read.pop() and found["independent_read"] == 2 * found["read"]
    assert found["spent"] == found["encoded"] + found["read"]
    assert found["independent_ratio"] == found["independent_read"] / found["spent"]


@pytest.mark.slow
def test_shards_together_equal_one_run(tmp_path, small_data, reader):
    def config(name, shard=""):
        return config_of(small_data, tmp_path / name / "labels.parquet", shard=shard)

    whole = tables(label(config("whole")))
    asked = [question for question, _ in reader.asked]
    reader.asked = []
    for number in (3, 1):
        assert not label(config("parts", f"{number}/3")).exists()
    out = label(config("parts", "2/3"))
    assert tables(out) == whole
    assert sorted(question for question, _ in reader.asked) == sorted(asked)
    assert sorted(path.name for path in out.parent.iterdir()) == ["labels.parquet", "labels.questions.parquet"]
    # A run without a shard takes over what shards have done.
    reader.asked = []
    label(config("more", "1/2"))
    done = {question for question, _ in reader.asked}
    reader.asked = []
    assert tables(label(config("more"))) == whole
    assert not done & {question for question, _ in reader.asked} and done


@pytest.mark.slow
def test_parts_of_different_work_are_refused(tmp_path, small_data, reader):
    label(config_of(small_data, tmp_path / "labels.parquet", shard="1/2"))
    with pytest.raises(DataError, match=r"labels.1-of-2.journal.jsonl belongs to a run with other settings"):
        label(config_of(small_data, tmp_path / "labels.parquet", shard="2/2", budget=30))
    # Another table's journal, of whatever name, is none of its business.
    label(config_of(small_data, tmp_path / "labels.more.parquet", shard="1/2", budget=30))
    assert label(config_of(small_data, tmp_path / "labels.parquet", shard="2/2")).exists()
    assert (tmp_path / "labels.more.1-of-2.journal.jsonl").exists()


@pytest.mark.slow
def test_finished_tables_are_merged(tmp_path, reader):
    paths = []
    for name in ("islands", "seas"):
        folder = write_folder(tmp_path / name)
        paths.append(label(config_of(folder, tmp_path / f"{name}.parquet", splits="dev")))
    out = label(LabelConfig(merge=f"{paths[0]}, {paths[1]}", out=str(tmp_path / "both.parquet")))
    one, other, both = (tables(path) for path in (*paths, out))
    assert both[0] == one[0] + other[0]
    assert both[1] == one[1] + other[1]
    assert both[3]["contexts"] == one[3]["contexts"] + other[3]["contexts"]
    assert [settings["data"] for settings in both[2]["settings"]["merged"]] == [
        str(tmp_path / n) for n in ("islands", "seas")
    ]
    # What the table is for is the same, so it can be merged further; what it has already is not taken twice.
    with pytest.raises(DataError, match=r"both.parquet and .*seas.parquet both have questions of 'seas'"):
        merge_tables([out, paths[1]], tmp_path / "more.parquet")
    other = label(config_of(tmp_path / "seas", tmp_path / "other.parquet", budget=30))
    with pytest.raises(DataError, match=r"islands.parquet and .*other.parquet differ in setting 'budget': 48 and 30"):
        merge_tables([paths[0], other], tmp_path / "more.parquet")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embedder": "bge-m3"}, "differ in embedder: 'minilm' and 'bge-m3'; figures of one table have to be"),
        ({"versions": {"corag": "9"}}, r"differ in versions: \{\} and \{'corag': '9'\}"),
        ({"format_version": 1}, "b.parquet has format_version 1, this version reads 2; label again"),
    ],
)
def test_tables_of_other_origin_are_not_merged(tmp_path, changes, message):
    plain = {"format_version": 2, "work": "w", "embedder": "minilm", "versions": {}, "settings": {}}
    for name, metadata in (("a", plain), ("b", {**plain, **changes})):
        write_table(tmp_path / f"{name}.parquet", [label_row("q", "bm25", 0.5)], metadata)
        write_questions(tmp_path / f"{name}.parquet", [{"data": name, "query": "q"}], metadata)
    with pytest.raises(DataError, match=message):
        merge_tables([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "c.parquet")
    assert not (tmp_path / "c.parquet").exists() and not questions_path(tmp_path / "c.parquet").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": ""}, "data is empty; give a data folder with --data"),
        ({"shard": "3/2"}, "shard is '3/2'; write i/n with i from 1 to n, such as 1/2"),
        ({"shard": "0/2"}, "shard is '0/2'"),
        ({"shard": "1"}, "shard is '1'"),
        ({"shard": "1/"}, "shard is '1/'"),
        ({"workers": 0, "engine": "ray"}, "workers must be at least 1, got 0"),
        ({"workers": 2}, "address and workers are settings of engine 'ray'; add --engine ray"),
        ({"address": "auto"}, "address and workers are settings of engine 'ray'"),
        ({"sources": (LabelSource("x"),), "index": "y"}, "index is 'y', but every source has its own corpus"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        LabelConfig(**{"data": "data", "out": "out", **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sample": 0}, "sample must be at least 1, got 0"),
        ({"limit": 0}, "limit must be at least 1, got 0"),
        ({"held_out": 1.5}, "held_out of source 'x' is a share from 0 to 1, got 1.5"),
    ],
)
def test_sources_that_cannot_be_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        LabelSource("x", **settings)


def test_a_reader_may_have_settings(tmp_path, small_data, reader):
    with pytest.raises(InputError, match=r"'fast' is no setting; write name\(key=value, ...\)"):
        label(config_of(small_data, tmp_path / "labels.parquet", reader="echo(fast)"))


def test_figures_of_work_by_their_former_names():
    former = {"alone_encoded": 3, "alone_joined": 5, "alone_read": 7, "brute_joined": 11}
    now = {"encoded": 1, "independent_encoded": 2}
    found = total([{"encoded": 2, "joined": 0, "read": 0, "contexts": 1, "configurations": 1, **former}, now])
    names = ("encoded", "independent_encoded", "independent", "cross_encoder")
    assert [found[name] for name in names] == [3, 5, 17, 18]
