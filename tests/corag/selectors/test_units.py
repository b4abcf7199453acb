"""Selectors that choose sentences: the budget holds, spans are those of the text, and shared titles are paid once."""

import pytest

import corag
from corag.selectors.problem import SelectionProblem, cut_problem
from corag.text.documents import Document, passage
from corag.text.units import unit_size
from tests.fakes import CHARACTERS, WORDS

LAKE = Document("lake", "It is cold. The lake is 40 metres deep. Fish live in it. Nobody swims there.", "Lake Oro")
MILL = Document("mill", "The mill stands still. It burnt down in 1931.", "Old mill")
QUESTION = "How deep is the lake?"
OFFERED = [corag.Candidate(passage(LAKE), 0.9), corag.Candidate(passage(MILL), 0.4)]
SENTENCE = unit_size("sentence")


def select(budget=60, tokens=WORDS, **given):
    return corag.selector("naive", **{"reranker": "bm25", "unit": "sentence", "tokenizer": tokens, **given}).select(
        QUESTION, OFFERED, budget
    )


def test_the_sentence_that_answers_is_chosen_below_its_title():
    selection = select(budget=9)
    assert selection.text == "Lake Oro\nThe lake is 40 metres deep."
    assert selection.ids == ("lake#12-39",)
    assert [selection.text[start:end] for start, end in selection.spans] == ["The lake is 40 metres deep."]
    assert selection.cost_tokens == 8


@pytest.mark.parametrize("unit", ["sentence", "window(2)"])
def test_an_item_costs_what_stands_between_it_and_the_line_that_leads_into_it(unit):
    offered = [corag.Candidate(corag.Chunk("c", "You need:\n\n- a bolt. Long.\n- a nut\n- a key"), 0.9)]
    for budget in range(1, 50):
        selection = corag.selector("top-k", k=1, unit=unit, tokenizer=CHARACTERS).select("key?", offered, budget)
        assert selection.cost_tokens == len(selection.text) <= budget
    assert "You need:\n\u2026\n- a " in selection.text


def test_the_first_pass_keeps_what_shares_words_and_its_neighbours():
    passages = SelectionProblem(QUESTION, OFFERED, WORDS, 100)
    kept = cut_problem(passages, SENTENCE, 3).candidates
    assert [one.chunk.id for one in kept] == ["lake#12-39", "lake#0-11", "lake#40-56"]
    assert [one.similarity for one in kept] == sorted((one.similarity for one in kept), reverse=True)
    assert {one.kind for one in kept} == {"score"}
    assert len(cut_problem(passages, SENTENCE).chunks) == 6
    assert cut_problem(SelectionProblem(QUESTION, [], WORDS, 100), SENTENCE).chunks == []
