"""`sentence-threshold`: which sentences it keeps, in which order, and at which cost."""

import corag
from corag.text.documents import Document, passage
from corag.types import Candidate
from tests.corag.selectors.test_units import LAKE, MILL
from tests.fakes import WORDS

SEA = Document("sea", "The sea is salty. The sea is 90 metres deep.", "The sea")
OFFERED = [Candidate(passage(one), 0.9 - place / 10) for place, one in enumerate((MILL, LAKE, SEA))]


def select(budget=60, **given):
    selector = corag.selector("sentence-threshold", reranker="bm25", tokenizer=WORDS, **given)
    return selector.select("How deep is the lake?", OFFERED, budget)


def test_every_sentence_of_a_high_value_stays_in_rank_order():
    selection = select(threshold=0.5)
    assert selection.text == "Lake Oro\nThe lake is 40 metres deep.\n\nThe sea\nThe sea is 90 metres deep."
    assert selection.trace.details["passing"] == 2
    assert select(threshold=1.0).ids == ("lake#12-39",)
    assert select(threshold=0.0).cost_tokens == sum(len(f"{one.title} {one.text}".split()) for one in (MILL, LAKE, SEA))


def test_a_sentence_is_kept_where_none_passes():
    assert select(threshold=1.0, relative=False).ids == ("lake#12-39",)
    empty = select(threshold=1.0, relative=False, at_least=0)
    assert empty.text == "" and "no sentence" in empty.trace.reason
    assert select(threshold=1.0, budget=4, k=1).text == ""
