"""The reranker of selectors that are given none."""

import pytest

import corag
from corag.models.trained import folder
from corag.selectors.reranking import Naive, Upper, default_reranker
from corag.text.units import Unit


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


@pytest.mark.usefixtures("no_checkpoints")
@pytest.mark.parametrize("selector", [Naive, Upper])
def test_one_without_training_where_they_are_not(selector):
    assert selector().reranker.name == default_reranker() == "minilm-softsim"
    assert corag.selector("corag", agent="none")._reranker.name == "minilm-softsim"


def test_what_is_given_is_taken():
    given = corag.reranker("bm25")
    assert Naive(reranker=given).reranker is given
    assert Upper(reranker="bm25").reranker.name == "bm25"
