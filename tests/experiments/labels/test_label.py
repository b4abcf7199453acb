"""`corag label`: what is measured, shared, resumed and refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

import corag
from corag.errors import DataError, InputError
from corag.text.data import DataFolder
from experiments.data.splits import held_out
from experiments.labels.config import LabelConfig, LabelSource
from experiments.labels.examples import read_sources
from experiments.labels.label import label
from experiments.labels.table import read_labels, read_metadata
from experiments.protocol.held_out import held_out_ids
from tests.chat_server import ChatServer, Reply
from tests.experiments.worlds import DOCUMENTS, QUERIES, write_folder

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


def test_a_complete_table_is_neither_made_again_nor_overwritten(tmp_path, small_data, reader):
    config = config_of(small_data, tmp_path / "labels.parquet")
    label(config)
    asked = len(reader.asked)
    label(config)
    assert len(reader.asked) == asked
    with pytest.raises(DataError, match="labels"):
        label(replace(config, budget=50))


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
