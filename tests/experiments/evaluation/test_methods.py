from functools import cache

import pytest

import corag
from corag.errors import MissingExtraError
from corag.registry import SELECTORS
from corag.selectors.base import BudgetedSelector, Choice
from experiments.evaluation.methods import make_methods


def offered(**settings):
    return {
        "tokenizer": corag.tokens(), "reranker": "bm25", "agent": None,
        "reader": "extractive", "summarizer": "extractive", "embedder": corag.embedder(), **settings,
    }  # fmt: skip


@pytest.mark.parametrize("shared", [False, True])
def test_methods_share_what_they_may(small_checkpoint, shared):
    names = "top-k,naive,corag,corag(agent=none),naive(reranker=minilm-softsim),corag(reranker=bm25),upper"
    reranker = cache(corag.reranker) if shared else None
    selectors = make_methods(names, offered(reranker=None, agent=str(small_checkpoint)), reranker).selectors
    assert list(selectors) == names.split(",")
    assert selectors["corag"].agent is not None and selectors["corag(agent=none)"].agent is None
    # What is given does not silence the agent on the rest.
    assert selectors["corag(reranker=bm25)"].agent is not None
    assert selectors["naive(reranker=minilm-softsim)"].reranker.name == "minilm-softsim"
    both = make_methods("naive,upper", offered(), reranker).selectors.values()
    one, other = (selector.reranker for selector in both)
    assert one.name == other.name == "bm25" and (one is other) == shared


def test_all_stands_for_what_can_run(small_checkpoint, monkeypatch):
    class Mine(BudgetedSelector):
        name = "mine"

        def _choose(self, problem):
            return Choice((), 0.0)

    def lacking(**settings):
        raise MissingExtraError("pip install 'corag[some]'")

    monkeypatch.setitem(SELECTORS.parts, "mine", Mine)
    monkeypatch.setitem(SELECTORS.parts, "lacking", lacking)
    methods = make_methods("all,top-k(k=3)", offered())
    expected = [name for name in SELECTORS.names if name != "lacking"]
    assert list(methods.selectors) == [*expected, "top-k(k=3)"] and "mine" in expected
    assert list(methods.left_out) == ["lacking"]
    assert list(make_methods("all", offered(reranker=None, agent=str(small_checkpoint))).left_out) == ["lacking"]
    with pytest.raises(MissingExtraError):
        make_methods("lacking", offered())
