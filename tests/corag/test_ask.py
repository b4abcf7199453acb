"""From a question to a reply."""

import json

import pytest

import corag
from corag.budget import Counts
from corag.index import ChunkIndex

COUNTS = Counts(48, "prompt", None, "minilm", exact=True)
QUESTION = "How deep is the lake in which the Oro ends?"


def asked(uri, budget_tokens=48, **settings):
    given = {"method": corag.selector("corag", **settings), "reader": "extractive", "num_candidates": 8}
    return corag.ask(QUESTION, ChunkIndex.open(uri), budget_tokens=budget_tokens, retrieval="hybrid", **given)


def test_each_step_hands_on_to_the_next(small_index):
    reply = asked(small_index)
    embedder = corag.embedder()
    candidates = ChunkIndex.open(small_index).retrieve(QUESTION, embedder.embed([QUESTION])[0], 8, "hybrid")
    selection = corag.selector("corag").select(QUESTION, candidates, 48)
    assert reply.selection.ids == selection.ids != ()
    assert reply.selection.text == selection.text
    assert reply.answer == corag.reader("extractive").answer(QUESTION, selection.text)
    assert "Lake Sable is the deepest lake" in reply.answer.text
    assert list(reply.seconds) == ["embed", "retrieve", "select", "read"]
    assert all(seconds >= 0 for seconds in reply.seconds.values())


def test_a_reply_can_be_written_as_json(small_index):
    reply = asked(small_index)
    said = json.loads(json.dumps(reply.to_dict(), allow_nan=False))
    assert said["question"] == QUESTION and said["headline"] == reply.shown.headline
    assert said["citations"]["[1]"] == said["chunks"][0]["id"]
    assert set(said["citations"].values()) <= set(reply.selection.ids)
    assert (said["method"], said["budget_tokens"]) == ("corag", 48)
    assert said["cost_tokens"] == reply.selection.cost_tokens <= 48
    assert [chunk["id"] for chunk in said["chunks"]] == list(reply.selection.ids)
    assert said["chunks"][0]["metadata"]["document"] == reply.selection.chunks[0].metadata["document"]
    assert "result" not in said["trace"] and len(said["trace"]["chunk_tokens"]) == len(reply.selection)


def test_an_index_by_its_path_and_one_that_is_not_there(small_index):
    by_path = corag.ask(QUESTION, str(small_index), budget_tokens=48, reader="extractive", num_candidates=8)
    assert by_path.selection.ids == asked(small_index).selection.ids
    with pytest.raises(corag.errors.IndexMismatchError, match="nowhere"):
        corag.ask("How deep?", "nowhere")
