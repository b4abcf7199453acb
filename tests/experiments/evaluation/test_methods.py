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
