"""What all adapters share, with documents of no framework."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.integrations.choosing import KEY, Chooser
from tests.corag.integrations.worlds import (
    CHARACTERS,
    FACTS,
    QUESTION,
    Note,
    Notes,
    Writes,
    tokens,
)
from tests.corag.worlds import COUNTERS, TEXTS, HashReranker, cheap_selector

TOP = Chooser("top-k", settings={"k": 50})
PLAIN = Notes()
NAMED = [Note(text, f"n{place}") for place, text in enumerate(FACTS)]


def choose(documents, budget_tokens=100, chooser=TOP, adapter=PLAIN, **options):
    return chooser.choose(QUESTION, documents, adapter, budget_tokens, **options)


def test_nothing_to_choose_from():
    for documents in ([], [Note("")], [Note(" \n")]):
        chosen = choose(documents)
        assert chosen.documents == [] and "no documents with text" in chosen.selection["trace"]["reason"]


def test_documents_come_back_as_they_were_with_a_note():
    before = [Note(text, f"n{place}", meta={"page": place}) for place, text in enumerate(FACTS)]
    chosen = choose(before, 40)
    assert [one.text for one in chosen.documents] == FACTS[: len(chosen.documents)] and len(chosen.documents) == 2
    assert [one.meta["page"] for one in chosen.documents] == [0, 1] and before[0].meta == {"page": 0}
    note = chosen.documents[1].meta[KEY]
    assert note["place"] == 1 and note["tokens"] == tokens(FACTS[1]) and "spans" not in note
    assert note["selection"] == chosen.selection == json.loads(json.dumps(chosen.selection))
    assert chosen.selection["cost_tokens"] == tokens("\n\n".join(FACTS[:2])) <= 40
    assert chosen.selection["selector"] == "top-k" and chosen.selection["trace"]["chunk_tokens"]


def test_chosen_sentences_come_back_as_the_text_of_their_document():
    chooser = Chooser("corag", settings={"reranker": "bm25", "unit": "sentence", "agent": "none"})
    titled = [Note(text, f"n{place}", title=f"Title {place}: ") for place, text in enumerate(FACTS)]
    [first, *_] = choose(titled, 12, chooser).documents
    assert first.text == "Cher has 2 bridges." and first.title == "Title 2: "
    [[start, end]] = first.meta[KEY]["spans"]
    assert FACTS[2][start:end] == first.text


def test_a_title_in_the_text_stays_there():
    chooser = Chooser("corag", settings={"reranker": "bm25", "unit": "sentence", "agent": "none"})
    before = [Note(f"River {place}\n{text}", f"n{place}", title=f"River {place}") for place, text in enumerate(FACTS)]
    [first, *_] = choose(before, 12, chooser, Notes(template="{text}")).documents
    assert first.text == "River 2\nCher has 2 bridges."
    whole = choose(before, 200, adapter=Notes(template="{text}")).documents
    assert [one.text for one in whole] == [one.text for one in before]


def test_repeated_documents_are_chosen_once_and_ids_that_clash_do_no_harm():
    same = choose([*NAMED[:2], NAMED[0], Note(FACTS[1])]).documents
    assert [one.text for one in same] == FACTS[:2]
    clash = choose([Note(text, "one id") for text in FACTS[:3]]).documents
    assert [one.text for one in clash] == FACTS[:3]
    assert len(choose([Note(text) for text in FACTS[:3]]).documents) == 3


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
def test_one_score_that_is_none_leaves_the_order_alone(bad):
    scores = [0.1, bad, 0.9]
    documents = [Note(text, score=score) for text, score in zip(FACTS, scores, strict=False)]
    assert choose(documents).selection["trace"]["chunk_similarities"] == [None] * 3
    assert [one.text for one in choose(documents).documents] == FACTS[:3]


def test_scores_of_any_scale_are_taken_and_the_order_given_is_the_ranking():
    documents = [Note(text, score=score) for text, score in zip(FACTS, [-7.5, 31, 2], strict=False)]
    chosen = choose(documents)
    assert chosen.selection["trace"]["chunk_similarities"] == [-7.5, 31.0, 2.0]
    assert [one.text for one in chosen.documents] == FACTS[:3]
    with pytest.raises(InputError, match="cosine"):
        choose(documents, chooser=Chooser("similarity-cutoff"), score_kind="cosine")
    assert choose(documents, score_kind="rank").selection["trace"]["chunk_similarities"] == [None] * 3


def test_the_order_is_the_selectors_or_the_one_given():
    chooser = Chooser("reorder", settings={"selector": "top-k", "k": 3})
    assert [one.id for one in choose(NAMED, chooser=chooser).documents] == ["n0", "n2", "n1"]
    assert [one.id for one in choose(NAMED, chooser=chooser, order="given").documents] == ["n0", "n1", "n2"]


def test_what_the_prompt_puts_around_documents_is_paid_for():
    plain = choose(NAMED, 60)
    framed = choose(NAMED, 60, adapter=Notes("\n-----\n", "<document title='{title}'>\n{text}\n</document>"))
    assert len(plain.documents) == 3 > len(framed.documents) > 0
    assert framed.selection["cost_tokens"] <= 60 and framed.documents[0].text == FACTS[0]


def test_a_text_of_the_selectors_own_is_one_document_that_names_its_sources():
    chosen = choose(NAMED, 30, Chooser(Writes()))
    [document] = chosen.documents
    assert document.text == Writes.text and document.meta[KEY]["sources"] == ["n0", "n1"]
    # With its frame it costs more than the budget, whatever the selector counted.
    framed = choose(NAMED, 30, Chooser(Writes()), Notes(template="<a b='c' d='e' f='g' h='i'>{text}</a>" * 2))
    assert framed.documents == [] and framed.selection["cost_tokens"] == 0


@pytest.mark.parametrize("name", corag.SELECTORS.names)
def test_every_selector_keeps_the_budget_of_what_is_rendered(name, small_checkpoint):
    chooser = Chooser(cheap_selector(name, small_checkpoint))
    adapter = Notes("\n-----\n", "<document title='{title}'>\n{text}\n</document>")
    documents = [Note(text, f"n{place}", title="Rivers", score=0.9 - place / 9) for place, text in enumerate(FACTS)]
    for budget in (10, 50, 300):
        chosen = choose(documents, budget, chooser, adapter, score_kind="cosine")
        assert not chosen.documents or tokens(adapter.render(chosen.documents)) <= budget
        assert json.loads(json.dumps([one.meta for one in chosen.documents])) == [one.meta for one in chosen.documents]
    assert chosen.documents or name == "none"


def test_settings_survive_json_and_pickles_and_nothing_is_built_before_it_is_used():
    reranker = corag.reranker("bm25", b=0.2)
    chooser = Chooser("corag", "estimate", {"reranker": reranker, "unit": "passage"})
    assert chooser._built is None
    kept = json.loads(json.dumps(chooser.to_dict()))
    assert kept == {
        "selector": "corag", "tokenizer": "estimate", "settings": {"reranker": "bm25(b=0.2)", "unit": "passage"},
    }  # fmt: skip
    again = Chooser(**kept)
    first = choose(NAMED, 60, chooser).documents
    assert [one.text for one in choose(NAMED, 60, again).documents] == [one.text for one in first]
    assert copy.deepcopy(chooser)._built is None and chooser._built is not None


SEPARATORS = st.sampled_from(["\n\n", "", "\n---\n", "b\n", "☃"])
TEMPLATES = st.sampled_from(["{text}", "{title}\n\n{text}", "[{title}] <{text}>", "{text!r}", "{title}{title}{text} "])


@given(
    texts=st.lists(st.tuples(TEXTS, TEXTS), max_size=4), budget=st.integers(1, 120), separator=SEPARATORS,
    template=TEMPLATES, counter=st.sampled_from(COUNTERS), unit=st.sampled_from(["passage", "sentence"]),
    order=st.sampled_from(["selected", "given"]),
)  # fmt: skip
def test_the_rendered_text_never_costs_more_than_the_budget(texts, budget, separator, template, counter, unit, order):
    settings = {"reranker": HashReranker(), "search": {"policy": "beam"}, "unit": unit}
    adapter = Notes(separator, template)
    documents = [Note(text, title=title.strip()) for text, title in texts]
    chosen = choose(documents, budget, Chooser("corag", counter, settings), adapter, order=order)
    if chosen.documents:
        assert tokens(adapter.render(chosen.documents), counter) <= budget
        assert tokens(adapter.render(chosen.documents), counter) == chosen.selection["cost_tokens"]


def test_the_room_of_the_frame_is_used():
    """What fits with its frame is chosen: the limit is that of the rendered text, neither more nor less."""
    adapter = Notes("\n--\n", "<{title}{text}>")
    whole = adapter.render(NAMED[:2])
    for budget, expected in ((len(whole), 2), (len(whole) - 1, 1)):
        chosen = choose(NAMED[:2], budget, Chooser("top-k", CHARACTERS, {"k": 5}), adapter)
        assert len(chosen.documents) == expected
