"""`unit=auto`: each question decides between passages and sentences, and the trace says why."""

import json

import pytest

import corag
from corag.errors import InputError
from corag.selectors.auto import asks_to_explain
from corag.text.documents import Document, passage
from corag.text.tokens import CallableCounter
from corag.text.units import Unit
from corag.types import Candidate

WORDS = CallableCounter(str.split, name="words")
LAKE = Document("lake", "It is cold. The lake is 40 metres deep. Fish live in it. Nobody swims there.", "Lake Oro")
MILL = Document("mill", "The mill stands still. It burnt down in 1931.", "Old mill")
OFFERED = [Candidate(passage(LAKE), 0.9), Candidate(passage(MILL), 0.4)]


def select(question, budget=60, offered=OFFERED, name="naive", **given):
    given = {"reranker": "bm25"} | given if name in ("naive", "corag") else given
    return corag.selector(name, unit="auto", tokens=WORDS, **given).select(question, offered, budget)


def decision(selection):
    return selection.trace.details["unit"], selection.trace.details["unit_reason"]


@pytest.mark.parametrize(
    "question",
    [
        "Why is the lake cold?", "How do I open the valve?", "how is steel made", "Explain the tides.",
        "What causes glaucoma?", "What are the symptoms of Asthma ?", "What is (are) Acute Lymphoblastic Leukemia ?",
        "what is photosynthesis", "Describe the procedure", "What is the difference between a lake and a pond?",
        "What are the ways third parties obtain our information?",
    ],
)  # fmt: skip
def test_questions_that_want_an_explanation(question):
    assert asks_to_explain(question)


@pytest.mark.parametrize(
    "question",
    [
        "How deep is the lake?", "How many people live there?", "How  long is it?", "Who wrote Faust?", "When was it?",
        "What is the capital of France?", "Which of the two is older?", "Is the lake cold?", "湖有多深?", "?", "how",
        "Whyte and Co were founded when?",
    ],
)  # fmt: skip
def test_questions_for_a_fact(question):
    assert not asks_to_explain(question)


def test_a_fact_is_chosen_from_sentences_and_an_explanation_from_passages():
    fact, explanation = select("How deep is the lake?", budget=9), select("Why does nobody swim in the lake?")
    assert fact.ids == ("lake#12-39",)
    assert decision(fact) == ("sentence", "the question asks for a fact")
    assert set(explanation.ids) == {"lake", "mill"}
    assert decision(explanation) == ("passage", "the question asks for an explanation")


def test_an_explanation_comes_from_sentences_where_passages_do_not_fit():
    selection = select("Why does nobody swim in the lake?", budget=20)
    assert decision(selection) == ("sentence", "of the best-ranked passages 1 fit the budget")
    assert decision(select("Why?", budget=30, offered=OFFERED[:1]))[0] == "passage"  # all of one


def test_single_sentences_stay_passages():
    offered = [Candidate(corag.Chunk(str(row), f"Fact {row} is here."), 0.5) for row in range(3)]
    selection = select("How deep is the lake?", offered=offered)
    assert decision(selection) == ("passage", "the best-ranked passages are single sentences")
    assert set(selection.ids) == {"0", "1", "2"}


def test_without_candidates_there_is_nothing_to_decide():
    selection = select("How deep?", offered=[])
    assert decision(selection) == ("passage", "there are no candidates")
    assert selection.trace.reason == "there are no candidates"


@pytest.mark.parametrize("name", ["top-k", "full", "corag", "mmr"])
def test_every_selector_decides_alike_alone_and_for_many(name):
    given = {"embedder": "minilm"} if name == "mmr" else {"reranker": "bm25"} if name == "corag" else {}
    selector = corag.selector(name, unit="auto", tokens=WORDS, **given)
    queries = ["How deep is the lake?", "Why is it cold?"]
    many = selector.select_many(queries, [OFFERED, OFFERED], 60)
    assert [decision(one)[0] for one in many] == ["sentence", "passage"]
    assert [one.text for one in many] == [selector.select(query, OFFERED, 60).text for query in queries]
    json.dumps(many[0].trace.to_dict() | {"result": None})


def test_a_given_unit_needs_no_reason():
    selection = corag.selector("top-k", unit="sentence", tokens=WORDS).select("Why?", OFFERED, 60)
    assert "unit_reason" not in selection.trace.details


def test_auto_is_spelled_and_wrong_units_list_it():
    assert str(Unit.parse("auto")) == "auto"
    assert str(corag.selector("top-k(unit=auto)")) == "top-k(unit=auto)"
    with pytest.raises(InputError, match=r"it must be passage, sentence, window\(n\) with n sentences, or auto"):
        corag.selector("top-k(unit=automatic)")
    # Passages are what a pruner's selector chooses, whatever the question.
    assert corag.selector("prune(selector=top-k(unit=auto), reranker=bm25)").inner.unit == "auto"
