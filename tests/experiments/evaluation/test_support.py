"""Which sentences support an answer, as data folders tell it in several ways."""

import pytest

from corag.text.data import Query
from corag.text.documents import Document, passage
from corag.text.units import units
from experiments.evaluation.support import support_recall, supporting_spans

LAKE = Document("lake", "It is cold. The lake is 40 metres deep. Fish live in it.", "Lake Oro")
MILL = Document("mill", "The mill stands by Lake Oro. It burnt down in 1931. Nobody knows why.", "Old mill")
DOCUMENTS = {document.id: document for document in (LAKE, MILL)}


def query(answers=("40 metres",), gold=("lake",), **extra):
    return Query("q", "How deep is the lake by the mill?", tuple(answers), tuple(gold), "test", None, extra)


def found(given):
    return [
        (DOCUMENTS[one.document].text[one.start : one.end], one.known) for one in supporting_spans(given, DOCUMENTS)
    ]


@pytest.mark.parametrize("facts", [[["mill", [0]], ["lake", [1]]], [["mill", 0], ["lake", 1], ["lake", 1]]])
def test_facts_are_sentences_by_number_in_the_order_of_the_gold(facts):
    given = query(gold=("lake", "mill"), supporting_facts=facts)
    assert found(given) == [("The lake is 40 metres deep.", "fact"), ("The mill stands by Lake Oro.", "fact")]


@pytest.mark.parametrize(
    "facts",
    [
        [["lake", [3]]],  # there are three sentences
        [["Lake Oro", [1]]],  # a title is no id
        [["lake", [0]], ["mill", [1]]],  # the answer stands elsewhere: cut otherwise
        [["lake", "1"]],
        "lake",
        [],
    ],
)
def test_facts_that_do_not_fit_leave_what_the_answer_tells(facts):
    given = query(gold=("lake", "mill"), supporting_facts=facts)
    assert found(given) == [("The lake is 40 metres deep.", "answer")]


def test_spans_come_before_facts_and_stand_as_they_are_given():
    given = query(supporting_spans=["mill#52-69", "lake#0-11"], supporting_facts=[["lake", [1]]])
    assert found(given) == [("Nobody knows why.", "fact"), ("It is cold.", "fact")]
    for wrong in (["lake#0-11", "lake#50-999"], ["Lake#0-11"], [None], "lake#0-11"):
        given = query(supporting_spans=wrong, supporting_facts=[["lake", [1]]])
        assert found(given) == [("The lake is 40 metres deep.", "fact")]


def test_offsets_say_which_sentence_holds_the_answer():
    given = query(["it"], answer_starts=[LAKE.text.rindex("it")])
    assert found(given) == [("Fish live in it.", "offset")]
    both = query(["cold. The", "deep"], answer_starts=[6, LAKE.text.index("deep")])
    assert found(both) == [("It is cold.", "offset"), ("The lake is 40 metres deep.", "offset")]


def test_answers_are_looked_for_in_gold_passages_alone():
    assert found(query(("Lake Oro",), ("mill",))) == [("The mill stands by Lake Oro.", "answer")]
    assert found(query(("Lake Oro",), ("lake",))) == []
    assert found(query(("fish",))) == [("Fish live in it.", "answer")]
    assert found(query(("is",))) == [("It is cold.", "answer"), ("The lake is 40 metres deep.", "answer")]
    assert found(query(("40  metres",), ("lake#12-39",))) == [("The lake is 40 metres deep.", "answer")]


@pytest.mark.parametrize("given", [query(("yes",)), query(("",)), query(()), query(gold=()), query(gold=("gone",))])
def test_nothing_is_known_of_questions_without_an_answer_or_evidence(given):
    assert found(given) == []


def test_all_facts_are_needed_and_one_place_of_the_answer_is_enough():
    facts = supporting_spans(query(gold=("lake", "mill"), supporting_facts=[["lake", [1]], ["mill", [0]]]), DOCUMENTS)
    lake, mill = passage(LAKE), passage(MILL)
    first = units(mill, 1)[0]
    assert [support_recall(facts, chosen) for chosen in ([], [lake], [first], [lake, first], [lake, mill])] == [
        0.0, 0.5, 0.5, 1.0, 1.0,
    ]  # fmt: skip
    assert support_recall(facts, [units(mill, 1)[1]]) == 0.0
    offsets = supporting_spans(query(["cold", "deep"], answer_starts=[6, LAKE.text.index("deep")]), DOCUMENTS)
    assert [support_recall(offsets, chosen) for chosen in ([], units(lake, 1)[:1], [lake])] == [0.0, 1.0, 1.0]
    guessed = supporting_spans(query(), DOCUMENTS)
    assert guessed
    assert support_recall(guessed, [lake]) is None
