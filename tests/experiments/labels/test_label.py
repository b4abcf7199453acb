"""`corag label`: what is measured, shared, resumed and refused; and the table that it writes."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import corag
from corag.errors import DataError, InputError
from corag.memory import clear_caches
from corag.models.trained import shipped_adapter
from corag.text.data import DataFolder
from experiments.data.splits import held_out
from experiments.labels.config import LabelConfig, LabelSource
from experiments.labels.examples import read_sources
from experiments.labels.label import label, show
from experiments.labels.table import read_labels, read_metadata
from experiments.protocol.held_out import held_out_ids
from tests.chat_server import ChatServer, Reply
from tests.experiments.worlds import DOCUMENTS, QUERIES, label_row, question_row, write_folder, write_labels

CONFIGURATIONS = "naive(reranker=bm25),top-k(k=2),corag(unit=passage, reranker=minilm-softsim)"
NO_GRID = {"iterations": "", "explorations": "", "cost_weights": ""}


def config_of(folder, table, **settings):
    given = {"configurations": CONFIGURATIONS, **NO_GRID, "budget": 48, "reader": "first-words", "quiet": True}
    return LabelConfig(**{"data": str(folder), "out": str(table), **given, **settings})


def asked(config):
    """The ids of the questions that would be labelled."""
    return {query.id for source in read_sources(config) for query in source.queries}


def test_one_row_for_each_question_and_configuration(tmp_path, small_data, reader):
    out = label(config_of(small_data, tmp_path / "new" / "labels.parquet"))
    labels = read_labels(str(out))
    # One of nine has neither answers nor gold passages.
    assert len(labels) == 8 and len(labels.configurations) == 3
    assert (labels.measures["cost_tokens"] <= 48).all()
    [vector] = corag.embedder().embed([QUERIES[0]["question"]])
    np.testing.assert_allclose(labels.query_vectors[0], vector, atol=1e-3)
    metadata = read_metadata(out)
    assert {"work", "embedder", "tokenizer", "settings", "versions", "models"} <= set(metadata)
    # Equal contexts of a question are read once.
    assert len(set(reader.asked)) == len(reader.asked) < 24


def test_what_contexts_hold_is_labelled_without_a_reader(tmp_path, small_data):
    labels = read_labels(str(label(config_of(small_data, tmp_path / "labels.parquet", reader="none"))))
    assert len(labels) == 8 and np.isfinite(labels.measures["answer_recall"]).any()
    assert not np.isfinite(labels.measures.get("f1", np.nan)).any()


@pytest.mark.slow
def test_a_server_has_prompts_of_many_questions_at_once_and_each_of_them_once(tmp_path, small_data):
    with ChatServer(Reply("Varn"), gate=6) as server:
        reader = f"openai(base_url={server.base_url}, model=llama3.1:8b, tokenizer=minilm, max_concurrent=6)"
        config = config_of(small_data, tmp_path / "labels.parquet", reader=reader, budget_for="context")
        labels = read_labels(str(label(config)))
        asked = [json.dumps(body["messages"]) for body in server.chats]
    # Three configurations: six prompts are of at least two questions.
    assert server.most_at_once == 6 and len(set(asked)) == len(asked) > 8
    assert len(labels) == 8 and (labels.measures["cost_tokens"] <= 48).all()


def test_a_complete_table_is_neither_made_again_nor_overwritten(tmp_path, small_data, reader, capsys):
    config = config_of(small_data, tmp_path / "labels.parquet")
    label(config)
    # Nothing learns from the labels of `corag tune` and of the demo but these.
    assert not capsys.readouterr().out
    asked = len(reader.asked)
    show(config)
    assert len(reader.asked) == asked and "corag train --labels" in capsys.readouterr().out
    with pytest.raises(DataError, match="labels"):
        label(replace(config, budget=50))


def test_a_larger_limit_goes_on_from_a_finished_table(tmp_path, small_data, reader):
    clear_caches()  # a table lists the models that ran
    config = config_of(small_data, tmp_path / "labels.parquet", limit=2)
    few = read_labels(str(label(config)))
    extended = label(replace(config, limit=None)).read_bytes()
    assert len(few) == 4 and len(set(reader.asked)) == len(reader.asked)
    clear_caches()
    assert label(config_of(small_data, tmp_path / "whole.parquet")).read_bytes() == extended
    with pytest.raises(DataError, match="questions"):
        label(config)


def test_labels_of_a_part_that_was_trained_again_are_not_complete(tmp_path, small_data, reader):
    adapter = tmp_path / "fused"
    shutil.copytree(shipped_adapter("fused"), adapter)
    configurations = f"naive(reranker=bm25),corag(unit=passage, reranker=fused(adapter={adapter}))"
    config = config_of(small_data, tmp_path / "labels.parquet", configurations=configurations, limit=1, splits="dev")
    label(config)
    (adapter / "README.md").write_text("again")
    with pytest.raises(DataError, match="labels"):
        label(config)


def test_a_labelling_goes_on_where_a_run_ranks_nothing_for_what_is_left(tmp_path, small_data, reader):
    asked = [row["id"] for row in QUERIES if row["split"] == "train"]
    (tmp_path / "a.run").write_text("".join(f"{name} Q0 varn 1 1 bm25\n" for name in asked[:-1]))
    run = {"run": str(tmp_path / "a.run"), "splits": "train", "configurations": "top-k(k=2)"}
    config = config_of(small_data, tmp_path / "labels.parquet", **run)
    reader.max_concurrent, reader.patience = 1, len(asked) - 1
    with pytest.raises(KeyboardInterrupt):
        label(config)
    reader.patience = 10**9
    assert len(read_labels(str(label(config)))) == len(asked)
    # What is written is not asked for again.
    assert len(set(reader.asked)) == len(reader.asked)


def test_shards_together_equal_one_run(tmp_path, small_data, reader):
    whole = label(config_of(small_data, tmp_path / "whole.parquet"))
    shards = [label(config_of(small_data, tmp_path / "labels.parquet", shard=f"{number}/3")) for number in (1, 2, 3)]
    assert [path.name for path in shards] == [f"labels.{number}-of-3.parquet" for number in (1, 2, 3)]
    together, alone = (
        dict(zip(of.ids, of.measures["cost_tokens"].tolist(), strict=True))
        for of in map(read_labels, (",".join(map(str, shards)), str(whole)))
    )
    assert together == alone and len(alone) == 8


def test_several_folders_in_one_table(tmp_path, reader):
    write_folder(tmp_path / "a"), write_folder(tmp_path / "b", DOCUMENTS, QUERIES[:4])
    sources = (LabelSource("a", "dev", limit=2), LabelSource("b", pool="corpus", num_candidates=5))
    labels = read_labels(str(label(config_of(tmp_path, tmp_path / "labels.parquet", sources=sources))))
    assert labels.ids == ("a/q6", "a/q7", "b/q1", "b/q2", "b/q3", "b/q4")
    assert len(labels.similarities[2]) == 5
    # What a source leaves open is as given for all.
    assert asked(config_of(tmp_path, tmp_path / "x", sources=sources, limit=1)) == {"q6", "q7", "q1"}
    held = (LabelSource("a", "train", part="held-out"),)
    folder = DataFolder.open(tmp_path / "a")
    assert asked(config_of(tmp_path, tmp_path / "x", sources=held)) == held_out(folder, folder.split("train"))
    twice = (LabelSource("a", "dev"), LabelSource("a", "dev"))
    with pytest.raises(InputError, match="sources"):
        read_sources(config_of(tmp_path, tmp_path / "x", sources=twice))


def test_the_grid_is_every_open_corag_with_every_setting():
    config = LabelConfig(
        out="o", data="d",
        configurations='corag(reranker=bm25),corag(search={"max_scored": 60}),naive,corag(cost_weight=0.1)',
        iterations="5,2,5", explorations="0.1", cost_weights="0,0.3",
    )  # fmt: skip
    names = config.configuration_list()
    assert len(names) == len(set(names)) == 10 and names[-2:] == ["naive", "corag(cost_weight=0.1)"]
    search = '"policy": "paper", "iterations": 5, "exploration": 0.1'
    assert names[0] == f"corag(reranker=bm25, search={{{search}}}, cost_weight=0.0)"
    assert names[4] == f'corag(search={{"max_scored": 60, {search}}}, cost_weight=0.0)'


def test_held_out_questions_are_never_labelled(tmp_path):
    (kept, *_), held = QUERIES, sorted(held_out_ids()["squad"])[0]
    sealed = {**QUERIES[3], "id": held, "split": "train"}
    # A question about a sealed one's document, and one with its words.
    alike = [{**sealed, "id": "a", "question": "How?"}, {**kept, "id": "b", "question": sealed["question"]}]
    folder = write_folder(tmp_path / "squad", DOCUMENTS, [kept, sealed, *alike])
    assert asked(config_of(folder, tmp_path / "x", splits="train")) == {"q1"}


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
    assert labels.budget.tolist() == [64, 64]


def test_a_question_under_two_budgets_is_two_questions(tmp_path):
    small = write_labels(tmp_path / "small.parquet", [{**row, "budget_tokens": 32} for row in ROWS], QUESTIONS)
    large = write_labels(tmp_path / "large.parquet", ROWS, QUESTIONS)
    labels = read_labels(f"{small},{large}")
    assert labels.ids == ("folder/q1@32", "folder/q2@32", "folder/q1@64", "folder/q2@64")
    assert labels.budget.tolist() == [32, 32, 64, 64]
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
    # A file may have a comma in its name, and many files together a name that is too long for one.
    assert len(read_labels(str(write_labels(tmp_path / "a,b.parquet", ROWS, QUESTIONS)))) == 2
    with pytest.raises(DataError, match=r"no file 0\.parquet"):
        read_labels(",".join(f"{number}.parquet" for number in range(99)))


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
    # The second folder of the name has another question of this id.
    others = {"questions": [question_row("q1", "how?", [1.0, 0.0]), QUESTIONS[1]]}
    alone = {"rows": [row for row in ROWS if "=a," in row["configuration"]]}
    for changes in ({"embedder": "other"}, alone, others):
        second = write_labels(tmp_path / "b.parquet", **{"rows": ROWS, "questions": QUESTIONS, **changes})
        with pytest.raises(DataError):
            read_labels(f"{tmp_path / 'a.parquet'},{second}")
