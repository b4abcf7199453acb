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


def choose(documents, budget_tokens=100, chooser=TOP, adapter=PLAIN, order="selected", **options):
    adapter.order = order
    return chooser.choose(QUESTION, documents, adapter, budget_tokens, **options)


def test_nothing_to_choose_from():
    for documents in ([], [Note("")], [Note(" \n")]):
        chosen, selection = choose(documents)
        assert chosen == [] and "no documents" in selection["trace"]["reason"]


def test_documents_come_back_as_they_were_with_a_note():
    before = [Note(text, f"n{place}", meta={"page": place}) for place, text in enumerate(FACTS)]
    chosen, selection = choose(before, 40)
    assert [one.text for one in chosen] == FACTS[:2]
    assert [one.meta["page"] for one in chosen] == [0, 1] and before[0].meta == {"page": 0}
    note = chosen[1].meta[KEY]
    assert note["place"] == 1 and note["tokens"] == tokens(FACTS[1]) and "spans" not in note
    assert note["selection"] == selection == json.loads(json.dumps(selection))
    assert selection["cost_tokens"] == tokens("\n\n".join(FACTS[:2])) <= 40
    assert selection["selector"] == "top-k" and selection["trace"]["chunk_tokens"]


def test_chosen_sentences_come_back_as_the_text_of_their_document():
    chooser = Chooser("corag", settings={"reranker": "bm25", "unit": "sentence", "agent": "none"})
    titled = [Note(text, f"n{place}", title=f"Title {place}: ") for place, text in enumerate(FACTS)]
    [first, *_] = choose(titled, 12, chooser)[0]
    assert first.text == "Cher has 2 bridges." and first.title == "Title 2: "
    [[start, end]] = first.meta[KEY]["spans"]
    assert FACTS[2][start:end] == first.text


def test_a_title_in_the_text_stays_there():
    chooser = Chooser("corag", settings={"reranker": "bm25", "unit": "sentence", "agent": "none"})
    before = [Note(f"River {place}\n{text}", f"n{place}", title=f"River {place}") for place, text in enumerate(FACTS)]
    [first, *_] = choose(before, 12, chooser, Notes(template="{text}"))[0]
    assert first.text == "River 2\nCher has 2 bridges."
    whole = choose(before, 200, adapter=Notes(template="{text}"))[0]
    assert [one.text for one in whole] == [one.text for one in before]


def test_repeated_documents_are_chosen_once_and_ids_that_clash_do_no_harm():
    same, _ = choose([*NAMED[:2], NAMED[0], Note(FACTS[1])])
    assert [one.text for one in same] == FACTS[:2]
    clash, _ = choose([Note(text, "one id") for text in FACTS[:3]])
    assert [one.text for one in clash] == FACTS[:3]


@pytest.mark.parametrize("bad", [None, float("nan")])
def test_one_score_that_is_none_leaves_the_order_alone(bad):
    scores = [0.1, bad, 0.9]
    documents = [Note(text, score=score) for text, score in zip(FACTS, scores, strict=False)]
    chosen, selection = choose(documents)
    assert selection["trace"]["chunk_similarities"] == [None] * 3
    assert [one.text for one in chosen] == FACTS[:3]


def test_scores_of_any_scale_are_taken_and_the_order_given_is_the_ranking():
    documents = [Note(text, score=score) for text, score in zip(FACTS, [-7.5, 31, 2], strict=False)]
    chosen, selection = choose(documents)
    assert selection["trace"]["chunk_similarities"] == [-7.5, 31.0, 2.0]
    assert [one.text for one in chosen] == FACTS[:3]
    with pytest.raises(InputError, match="cosine"):
        choose(documents, chooser=Chooser("similarity-cutoff"), score_kind="cosine")
    assert choose(documents, score_kind="rank")[1]["trace"]["chunk_similarities"] == [None] * 3


def test_the_order_is_the_selectors_or_the_one_given():
    chooser = Chooser("reorder", settings={"selector": "top-k", "k": 3})
    assert [one.id for one in choose(NAMED, chooser=chooser)[0]] == ["n0", "n2", "n1"]
    assert [one.id for one in choose(NAMED, chooser=chooser, order="given")[0]] == ["n0", "n1", "n2"]


def test_what_the_prompt_puts_around_documents_is_paid_for():
    plain, _ = choose(NAMED, 60)
    framed, selection = choose(NAMED, 60, adapter=Notes("\n-----\n", "<document title='{title}'>\n{text}\n</document>"))
    assert len(plain) == 3 > len(framed) > 0
    assert selection["cost_tokens"] <= 60 and framed[0].text == FACTS[0]


def test_a_text_of_the_selectors_own_is_one_document_that_names_its_sources():
    [document], _ = choose(NAMED, 30, Chooser(Writes()))
    assert document.text == Writes.text and document.meta[KEY]["sources"] == ["n0", "n1"]
    # With its frame it costs more than the budget, whatever the selector counted.
    framed, selection = choose(
        NAMED, 30, Chooser(Writes()), Notes(template="<a b='c' d='e' f='g' h='i'>{text}</a>" * 2)
    )
    assert framed == [] and selection["cost_tokens"] == 0


@pytest.mark.parametrize("name", corag.SELECTORS.names)
def test_every_selector_keeps_the_budget_of_what_is_rendered(name):
    chooser = Chooser(cheap_selector(name))
    adapter = Notes("\n-----\n", "<document title='{title}'>\n{text}\n</document>")
    documents = [Note(text, f"n{place}", title="Rivers", score=0.9 - place / 9) for place, text in enumerate(FACTS)]
    for budget in (10, 50, 300):
        chosen, _ = choose(documents, budget, chooser, adapter, score_kind="cosine")
        assert not chosen or tokens(adapter.render(chosen)) <= budget
        assert json.loads(json.dumps([one.meta for one in chosen])) == [one.meta for one in chosen]
    assert chosen or name == "none"


def test_settings_survive_json_and_copies():
    reranker = corag.reranker("bm25", b=0.2)
    chooser = Chooser("corag", "estimate", {"reranker": reranker, "unit": "passage"})
    kept = json.loads(json.dumps(chooser.to_dict()))
    assert kept == {
        "selector": "corag", "tokenizer": "estimate", "settings": {"reranker": "bm25(b=0.2)", "unit": "passage"},
    }  # fmt: skip
    again = Chooser(**kept)
    expected = [one.text for one in choose(NAMED, 60, chooser)[0]]
    for made in (again, copy.deepcopy(chooser)):
        assert [one.text for one in choose(NAMED, 60, made)[0]] == expected


SEPARATORS = st.sampled_from(["\n\n", "", "\n---\n", "b\n", "☃"])
TEMPLATES = st.sampled_from(["{text}", "{title}\n\n{text}", "[{title}] <{text}>", "{text!r}", "{title}{title}{text} "])


@given(
    texts=st.lists(st.tuples(TEXTS, TEXTS), max_size=4), budget=st.integers(1, 120), separator=SEPARATORS,
    template=TEMPLATES, counter=st.sampled_from(COUNTERS), unit=st.sampled_from(["passage", "sentence"]),
    order=st.sampled_from(["selected", "given"]),
)  # fmt: skip
def test_the_rendered_text_never_costs_more_than_the_budget(texts, budget, separator, template, counter, unit, order):
    settings = {"reranker": HashReranker(), "search": {"policy": "paper"}, "unit": unit}
    adapter = Notes(separator, template)
    documents = [Note(text, title=title.strip()) for text, title in texts]
    chosen, selection = choose(documents, budget, Chooser("corag", counter, settings), adapter, order=order)
    if chosen:
        assert tokens(adapter.render(chosen), counter) == selection["cost_tokens"] <= budget


def test_the_limit_is_that_of_the_rendered_text():
    adapter = Notes("\n--\n", "<{title}{text}>")
    whole = adapter.render(NAMED[:2])
    for budget, expected in ((len(whole), 2), (len(whole) - 1, 1)):
        chosen, _ = choose(NAMED[:2], budget, Chooser("top-k", CHARACTERS, {"k": 5}), adapter)
        assert len(chosen) == expected
