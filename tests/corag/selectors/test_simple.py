"""What takes the ranking as it is, cuts it off, keeps sentences or asks a reader: by hand."""

from dataclasses import replace

import pytest

import corag
from corag import Chunk
from corag.selectors.base import arranged
from corag.text.documents import Document, passage
from corag.text.tokens import CallableCounter
from corag.types import Answer, Candidate
from tests.fakes import CHARACTERS, WORDS, FakeReader, essence, offer

POOL = offer("aaaa", "bbbb", "cccc", "dddd", similarities=[0.4, 0.9, 0.1, 0.5])


def ids(name, budget=100, pool=POOL, **settings):
    return corag.selector(name, tokenizer=CHARACTERS, **settings).select("a?", pool, budget).ids


def test_full_takes_what_fits_in_the_given_order():
    assert ids("full") == ("c0", "c1", "c2", "c3")
    # 4 + 2 + 4 + 2 + 4 characters.
    assert ids("full", 16) == ("c0", "c1", "c2")
    assert "(the cheapest costs 2)" in corag.selector("full").select("a?", POOL, 1).trace.reason
    assert "took none of the 4" in corag.selector("top-tokens", num_tokens=1).select("a?", POOL, 100).trace.reason
    # Together two cost 100, though 16 each.
    squared = CallableCounter(lambda text: len(text) ** 2)
    assert corag.selector("full", tokenizer=squared).select("a?", POOL, 50).ids == ("c0",)


def test_top_tokens_fills_its_own_number_of_tokens():
    assert ids("top-tokens") == ("c1", "c3", "c0", "c2")
    assert ids("top-tokens", num_tokens=10) == ("c1", "c3")
    assert ids("top-tokens", num_tokens=10, skip=False) == ("c1", "c3")
    assert ids("top-tokens", num_tokens=9) == ("c1",)
    assert ids("top-tokens", budget=4, num_tokens=10) == ("c1",)
    pool = offer("aa", "b" * 50, "cc")
    assert ids("top-tokens", pool=pool, num_tokens=10) == ("c0", "c2")
    assert ids("top-tokens", pool=pool, num_tokens=10, skip=False) == ("c0",)
    assert ids("top-tokens", pool=pool, num_tokens=1) == ()


def test_similarity_cutoff():
    assert ids("similarity-cutoff", minimum=0.4) == ("c1", "c3", "c0")
    assert ids("similarity-cutoff", minimum=0.95) == ("c1",)


@pytest.mark.parametrize("name", ["adaptive-k(buffer=0)", "car"])
def test_scores_of_another_scale_are_compared_as_cosines_are(name):
    assert ids(name, pool=[replace(one, similarity=20 * one.similarity, kind="score") for one in POOL]) == ids(name)


def test_a_ranking_that_is_not_that_of_the_similarities_decides_what_comes_first():
    ranks = [0, 3, 1, 2]  # the similarities rank c1, c3, c0, c2
    pool = [replace(one, rank=rank) for one, rank in zip(POOL, ranks, strict=True)]
    assert ids("top-k", pool=pool, k=3) == ids("top-k", pool=pool[::-1], k=3) == ("c0", "c2", "c3")
    assert ids("top-tokens", pool=pool, num_tokens=1000) == ("c0", "c2", "c3", "c1")
    # What compares similarities goes by these.
    for name in ("similarity-cutoff", "adaptive-k", "car"):
        assert ids(name, pool=pool) == ids(name)
    # Of a partly ranked pool the similarities are the ranking.
    assert ids("top-k", pool=[replace(pool[0], rank=None), *pool[1:]]) == ids("top-k")


# --- Sentences: the budget holds, spans are those of the text, and shared titles are paid once ---

LAKE = Document("lake", "It is cold. The lake is 40 metres deep. Fish live in it. Nobody swims there.", "Lake Oro")
MILL = Document("mill", "The mill stands still. It burnt down in 1931.", "Old mill")
QUESTION = "How deep is the lake?"
OFFERED = [Candidate(passage(LAKE), 0.9), Candidate(passage(MILL), 0.4)]


def test_the_sentence_that_answers_is_chosen_below_its_title():
    selector = corag.selector("naive", reranker="bm25", unit="sentence", tokenizer=WORDS)
    selection = selector.select(QUESTION, OFFERED, 9)
    assert selection.text == "Lake Oro\nThe lake is 40 metres deep."
    assert selection.ids == ("lake#12-39",)
    assert [selection.text[start:end] for start, end in selection.spans] == ["The lake is 40 metres deep."]
    assert selection.cost_tokens == 8


@pytest.mark.parametrize("unit", ["sentence", "window(2)"])
def test_an_item_costs_what_stands_between_it_and_the_line_that_leads_into_it(unit):
    offered = [Candidate(corag.Chunk("c", "You need:\n\n- a bolt. Long.\n- a nut\n- a key"), 0.9)]
    texts = set()
    for budget in range(1, 50):
        selection = corag.selector("top-k", k=1, unit=unit, tokenizer=CHARACTERS).select("key?", offered, budget)
        assert selection.cost_tokens == len(selection.text) <= budget
        texts.add(selection.text)
    assert "You need:\n\u2026\n- a key" in texts


# --- `sentence-threshold`: which sentences it keeps, in which order, and at which cost ---

SEA = Document("sea", "The sea is salty. The sea is 90 metres deep.", "The sea")
THREE = [Candidate(passage(one), 0.9 - place / 10) for place, one in enumerate((MILL, LAKE, SEA))]


def threshold(budget=60, **given):
    selector = corag.selector("sentence-threshold", reranker="bm25", tokenizer=WORDS, **given)
    return selector.select(QUESTION, THREE, budget)


def test_every_sentence_of_a_high_value_stays_in_rank_order():
    selection = threshold(threshold=0.5)
    assert selection.text == "Lake Oro\nThe lake is 40 metres deep.\n\nThe sea\nThe sea is 90 metres deep."
    assert selection.trace.details["passing"] == 2
    assert threshold(threshold=1.0).ids == ("lake#12-39",)
    assert threshold(threshold=1.0, budget=4).text == ""
    assert threshold(threshold=0.0).cost_tokens == sum(
        len(f"{one.title} {one.text}".split()) for one in (MILL, LAKE, SEA)
    )


def test_sentences_of_another_selection_are_passages():
    texts = ["It is cold. The lake is deep.", "Fish swim."]
    sentences = corag.select("How deep is the lake?", texts, 99, method="full", unit="sentence").chunks
    again = corag.select(
        "How deep is the lake?", sentences, 99, method="sentence-threshold(reranker=bm25, unit=passage)"
    )
    assert [chunk.text for chunk in again.chunks] == ["The lake is deep."]


# --- `self-route`: a small selection if the reader can answer from it, else a large one ---

LETTERS = offer("aaaa", "bbbb", "cccc", "dddd")


def route(reader, budget=100, k=2, **settings):
    made = corag.selector("self-route", reader=reader, part=f"top-k(k={k})", tokenizer=CHARACTERS, **settings)
    return made.select("Why?", LETTERS, budget)


def test_an_answer_stays_with_the_part():
    reader = FakeReader(Answer("Because."))
    selection = route(reader)
    assert selection.ids == ("c0", "c1")
    assert reader.asked == [("Why?", "aaaa\n\nbbbb")]
    assert (selection.trace.details["routed"], selection.trace.details["answer"]) == ("top-k", "Because.")


@pytest.mark.parametrize(("text", "confidence"), [("", None), (" ", 0.9), ("Because.", 0.4)])
def test_no_answer_goes_to_the_full_context(text, confidence):
    selection = route(FakeReader(Answer(text, confidence)))
    assert selection.ids == ("c0", "c1", "c2", "c3")
    assert selection.trace.details["routed"] == "full"
    assert "answer" not in selection.trace.details


def test_the_reader_is_not_asked_where_there_is_no_more_to_read():
    reader = FakeReader(Answer(""))
    assert route(reader, k=4).trace.details["asked"] is False
    assert route(reader, budget=10).ids == ("c0", "c1")
    assert reader.asked == []


@pytest.mark.parametrize(
    "part", ["corag(reranker=bm25, unit=sentence, keep=0.5)", "naive(reranker=bm25, unit=passage)"]
)
def test_each_of_the_two_chooses_as_it_does_alone(part):
    texts = [f"Passage {row}. It is about {row}. Lake {row} is deep." for row in range(6)]
    asked = {"query": "How deep is lake 3?", "texts": texts, "budget_tokens": 60}
    own, full = (essence(corag.select(**asked, method=method))[:-1] for method in (part, "full(unit=sentence)"))
    for answer, expected in (("Deep.", own), ("", full)):
        router = corag.selector(
            "self-route", part=part, full="full", reader=FakeReader(Answer(answer)), unit="sentence"
        )
        selections = [corag.select(**asked, method=router), *router.select_many([asked["query"]], [texts], 60)]
        assert [essence(selection) for selection in selections] == [(*expected, "self-route")] * 2


def test_a_unit_that_is_given_is_that_of_the_two_also_where_it_is_the_default():
    for given, expected in (({"unit": "passage"}, "passage"), ({}, "sentence")):
        router = corag.selector("self-route(part=sentence-threshold(reranker=bm25))", **given)
        assert (router.part.unit, router.full.unit) == (expected, "passage")


def part(document, start):
    place = {"document": document, "start": start, "end": start + 9}
    return Chunk(f"{document}#{start}-{start + 9}", f"{document} {start}", place)


def test_orders_by_hand():
    chunks = [part("b", 20), Chunk("note", "a note"), part("a", 5), part("b", 0), part("a", 1)]
    assert arranged(chunks, "value") == [0, 1, 2, 3, 4]
    assert arranged(chunks, "ends") == [0, 2, 4, 3, 1]
    assert arranged(chunks, "document") == [3, 0, 1, 4, 2]
