"""The reranker of selectors that are given none."""

import pytest

import corag
from corag.models.engine.engine import Engine
from corag.models.trained import folder
from corag.selectors.reranking import Naive, Upper, default_reranker
from corag.text.units import Unit
from corag.types import Candidate, Chunk


@pytest.fixture
def no_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "FOLDER", tmp_path)


@pytest.mark.parametrize("selector", [Naive, Upper])
def test_the_trained_one_where_the_checkpoints_are(selector):
    assert selector().reranker.name == default_reranker() == "minilm-multihop"


@pytest.mark.parametrize("unit", ["sentence", "window(2)"])
def test_what_is_smaller_than_a_passage_has_a_reranker_of_its_own(unit):
    assert Naive(unit=unit).reranker.name == default_reranker(Unit.parse(unit)) == "minilm-sentence"
    selector = corag.selector("corag", unit=unit)
    # The agent that ships has learnt from passages.
    assert selector.agent is None
    assert selector._reranker.name == "minilm-sentence"
    assert selector.config.policy == "beam"


@pytest.mark.parametrize(
    ("name", "known"), [("naive", lambda _: ["minilm-multihop"]), ("corag", lambda one: one.agent.config.rerankers)]
)
def test_where_each_question_decides_passages_and_sentences_have_their_own(name, known):
    lake = "Lake Oro\nIt is cold. The lake is 40 metres deep. Nobody swims there."
    offered = [
        Candidate(Chunk("lake", lake, {"title": "Lake Oro"})),
        Candidate(Chunk("mill", "It burnt. Nobody knows.")),
    ]
    questions = ["How deep is the lake?", "Why does nobody swim in the lake?"]
    selector = corag.selector(name, unit="auto")
    fact, explanation = (selector.select(question, offered, 60) for question in questions)
    assert fact.trace.reranker == "minilm-sentence"
    assert explanation.trace.reranker in known(selector)
    together = selector.select_many(questions, [offered, offered], 60)
    assert [(one.text, one.value) for one in together] == [(one.text, one.value) for one in (fact, explanation)]
    given = corag.selector(name, unit="auto", reranker="bm25")
    assert {given.select(question, offered, 60).trace.reranker for question in questions} == {"bm25"}


@pytest.mark.usefixtures("no_checkpoints")
@pytest.mark.parametrize("selector", [Naive, Upper])
def test_one_without_training_where_they_are_not(selector):
    assert selector().reranker.name == default_reranker() == "minilm-softsim"
    assert corag.selector("corag", agent="none")._reranker.name == "minilm-softsim"


def test_what_is_given_is_taken():
    given = corag.reranker("bm25")
    assert Naive(reranker=given).reranker is given
    assert Upper(reranker="bm25").reranker.name == "bm25"


def test_each_text_is_encoded_once(monkeypatch):
    encoded = []
    run = Engine.run
    monkeypatch.setattr(
        Engine, "run", lambda self, ids, *rest, **more: encoded.extend(ids) or run(self, ids, *rest, **more)
    )
    selector = corag.selector("corag")
    texts = [
        f"Lake {name}\nIt is cold. The lake is {len(name)} metres deep. Nobody swims." for name in ("Oro", "Onega")
    ]
    # Without similarities an agent would want cosines, and so an embedding of every text.
    offered = [Candidate(Chunk(text, text)) for text in texts]
    assert selector.select("How deep is Lake Oro?", offered, 60).trace.details["unit"] == "sentence"
    assert len(encoded) == 1 + len(texts)
