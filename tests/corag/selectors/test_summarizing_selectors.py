"""EDC2-RAG and CRAG as selectors: what is summarized, what stands in, what is counted."""

import pytest

import corag
from corag.errors import SummarizerError
from corag.summarizers.chat import OllamaSummarizer
from tests.chat_server import ChatServer, Reply
from tests.fakes import CHARACTERS, AxisEmbedder, FakeSummarizer, offer

POOL = offer("aaaa", "bbbb", "cccc", "dddd", "eeee", similarities=[0.9, 0.8, 0.7, 0.6, 0.5])


def select(name, summarizer, budget=200, pool=POOL, query="Why?", **settings):
    made = corag.selector(name, summarizer=summarizer, tokenizer=CHARACTERS, **{"embedder": AxisEmbedder(), **settings})
    return made.select(query, pool, budget)


def test_edc2_summarizes_each_cluster_with_the_question():
    summarizer = FakeSummarizer("one", "two", "three")
    pool = offer("a1", "a2", "b1", "b2", "c1")
    selection = select("edc2", summarizer, pool=pool, tau=1, max_size=2)
    assert [asked.texts for asked in summarizer.asked] == [("a1",), ("a2", "b1"), ("b2", "c1")]
    assert {asked.query for asked in summarizer.asked} == {"Why?"}
    assert selection.text == "one\n\ntwo\n\nthree"
    assert selection.ids == ("c0", "c1", "c2", "c3", "c4")


def test_crag_summarizes_clusters_without_the_question():
    summarizer = FakeSummarizer("first", "second")
    pool = offer("b one here", "a two here", "b three here", "a four here", similarities=[0.5, 0.4, 0.3, 0.9])
    selection = select("crag", summarizer, pool=pool, k=2)
    # The cluster of the most similar candidate comes first.
    texts = [("a two here", "a four here"), ("b one here", "b three here")]
    assert [asked.texts for asked in summarizer.asked] == texts
    assert {asked.query for asked in summarizer.asked} == {""}
    assert selection.text == "first\n\nsecond"
    assert selection.ids == ("c1", "c3", "c0", "c2")
    assert selection.trace.details["pieces"] == [
        {"kind": "summary", "sources": ["c1", "c3"]}, {"kind": "summary", "sources": ["c0", "c2"]},
    ]  # fmt: skip
    assert selection.cost_tokens == len("first\n\nsecond")
    assert select("crag", summarizer, pool=pool, k=2, with_query=True).text
    assert summarizer.asked[-1].query == "Why?"


@pytest.mark.parametrize(("reply", "failed", "empty"), [(SummarizerError("down"), 1, 0), ("", 0, 1), (" \n", 0, 1)])
def test_originals_stand_in_within_the_budget_and_are_counted(reply, failed, empty):
    selection = select("crag", FakeSummarizer(reply), k=1, budget=16)
    assert selection.text == "aaaa\n\nbbbb\n\ncccc"
    assert selection.ids == ("c0", "c1", "c2")
    assert (selection.trace.details["summaries_failed"], selection.trace.details["summaries_empty"]) == (failed, empty)
    assert selection.trace.details.get("failure") == ("down" if failed else None)
    assert [piece["kind"] for piece in selection.trace.details["pieces"]] == ["original"] * 3


@pytest.mark.parametrize(
    "reply", [Reply(status=500), Reply(body=b"[1]\n"), Reply(""), Reply("x", delay_s=9), Reply("NOTHING RELEVANT")]
)
def test_a_bad_server_loses_nothing(reply):
    with ChatServer(reply) as server:
        summarizer = OllamaSummarizer(host=server.host, timeout_s=0.2)
        selection = select("edc2", summarizer)
    assert set(selection.ids) == {"c0", "c1", "c2", "c3", "c4"}
    assert selection.trace.details["summaries_failed"] + selection.trace.details["summaries_empty"] == 2
