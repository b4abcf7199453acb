"""Selectors that choose sentences after passages, or one by one: what they keep, in which order, and at which cost."""

import numpy as np

import corag
from corag.selectors import BudgetedSelector, Choice
from corag.selectors.pruning import eliminate
from corag.text.documents import Document, passage
from corag.types import Candidate
from tests.fakes import WORDS

LAKE = Document("lake", "It is cold. The lake is 40 metres deep. Fish live in it. Nobody swims there.", "Lake Oro")
MILL = Document("mill", "The mill stands still. It burnt down in 1931.", "Old mill")
SEA = Document("sea", "The sea is salty. The sea is 90 metres deep.", "The sea")
OFFERED = [Candidate(passage(one), 0.9 - place / 10) for place, one in enumerate((MILL, LAKE, SEA))]
QUESTION = "How deep is the lake?"


def select(name, budget=60, offered=OFFERED, query=QUESTION, **given):
    kind = {"embedder": "minilm"} if "extractive" in name else {"reranker": "bm25"}
    return corag.selector(name, **{**kind, "tokenizer": WORDS, **given}).select(query, offered, budget)


def test_what_the_value_does_not_miss_is_dropped():
    values = {frozenset({0, 1, 2}): 0.5, frozenset({0, 2}): 0.8, frozenset({0}): 0.7}

    def score(orders):
        return np.array([values.get(frozenset(order), 0.0) for order in orders])

    assert eliminate((2, 1, 0), score, lambda _: True) == ((2, 0), 0.8)
    assert eliminate((2, 1, 0), score, lambda _: True, tolerance=0.15) == ((0,), 0.7)
    assert eliminate((2, 1, 0), score, lambda order: len(order) < 2) == ((0,), 0.7)
    assert eliminate((2, 1, 0), score, lambda _: False) == ((), 0.0)
    assert eliminate((), score, lambda _: True) == ((), 0.0)


def test_sentences_of_the_chosen_passages_are_dropped():
    selection = select("prune", selector="top-k(k=2)")
    assert selection.text == "Lake Oro\nThe lake is 40 metres deep."
    assert selection.ids == ("lake#12-39",)
    details = selection.trace.details
    assert (details["selector"], details["passages"], details["dropped"]) == ("top-k", ["mill", "lake"], 5)
    assert selection.trace.reranker == "bm25" and selection.trace.orders_scored > 0


def test_where_no_passage_fits_the_best_ranked_is_pruned():
    selection = select("prune", selector="top-k(k=1)", budget=8, offered=[OFFERED[1]])
    assert selection.text == "Lake Oro\nThe lake is 40 metres deep."
    nothing = select("prune", selector="top-k(k=1)", budget=2, offered=[OFFERED[1]])
    assert nothing.text == "" and nothing.trace.reason


class Written(BudgetedSelector):
    """Writes a text of its own."""

    name = "written"

    def _choose(self, problem):
        return Choice((1,), text="A lake.")


def test_a_text_that_the_selector_wrote_stays_as_it_is():
    selection = select("prune", selector=Written(tokenizer=WORDS))
    assert selection.text == "A lake."
    assert {chunk.source.id for chunk in selection.chunks} == {"lake"}


def test_every_sentence_of_a_high_value_stays_in_rank_order():
    selection = select("sentence-threshold", threshold=0.5)
    assert selection.text == "Lake Oro\nThe lake is 40 metres deep.\n\nThe sea\nThe sea is 90 metres deep."
    assert selection.trace.details["passing"] == 2
    assert select("sentence-threshold", threshold=1.0).ids == ("lake#12-39",)
    assert select("sentence-threshold", threshold=0.0).cost_tokens == sum(
        len(f"{one.title} {one.text}".split()) for one in (MILL, LAKE, SEA)
    )


def test_a_sentence_is_kept_where_none_passes():
    assert select("sentence-threshold", threshold=1.0, relative=False).ids == ("lake#12-39",)
    empty = select("sentence-threshold", threshold=1.0, relative=False, at_least=0)
    assert empty.text == "" and "no sentence" in empty.trace.reason
    assert select("sentence-threshold", threshold=1.0, budget=4, k=1).text == ""


def test_the_most_similar_sentences_stay_in_the_order_of_their_passages():
    one = select("extractive-compression", k=1)
    assert one.ids == ("lake#12-39",)
    first = Candidate(passage(SEA), 1.0)
    two = select("extractive-compression", k=2, offered=[first, *OFFERED[:2]])
    assert two.ids == ("sea#18-44", "lake#12-39")  # the ranking of the passages
    assert len(select("extractive-compression", k=99).chunks) == 8
