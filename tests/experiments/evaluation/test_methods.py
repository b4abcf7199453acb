import pytest

import corag
from corag.errors import InputError, MissingExtraError
from corag.registry import SELECTORS
from corag.selectors.base import BudgetedSelector, Choice
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.methods import make_methods


def offered(**settings):
    return {
        "tokens": corag.tokens(), "reranker": "bm25", "window": "forbid", "agent": None,
        "reader": "extractive", "summarizer": "extractive", "embedder": corag.embedder(), **settings,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["top-q(k=3)", "top-k(k=0)", "all(k=3)", " , ", "top-k,top-k", "corag-fixed"],
)
def test_methods_that_cannot_be_are_refused(text):
    with pytest.raises(InputError):
        make_methods(text, offered())


@pytest.mark.parametrize("shared", [False, True])
def test_methods_share_what_they_may(small_checkpoint, shared):
    names = "top-k,naive,corag,corag(agent=none),naive(reranker=minilm-maxsim),corag-fixed,upper"
    selectors = make_methods(names, offered(reranker=None, agent=str(small_checkpoint)), shared=shared).selectors
    assert list(selectors) == names.split(",")
    assert selectors["corag"].agent is not None and selectors["corag(agent=none)"].agent is None
    assert selectors["naive(reranker=minilm-maxsim)"].reranker.name == "minilm-maxsim"
    both = make_methods("naive,upper", offered(), shared=shared).selectors.values()
    one, other = (selector.reranker for selector in both)
    assert one.name == other.name == "bm25" and (one is other) == shared


def test_what_is_offered_goes_to_who_takes_it():
    embedder = corag.embedder()
    selectors = make_methods("crag,self-route,naive(window=truncate)", offered(embedder=embedder)).selectors
    assert selectors["crag"]._embedder.embedder is embedder
    assert selectors["self-route"].reader.name == "extractive"
    assert selectors["naive(window=truncate)"].window == "truncate"


@pytest.mark.parametrize(
    ("methods", "given"),
    [
        ("top-k,mmr", {"reranker": "bm25"}),
        ("naive(reranker=bm25)", {"reranker": "cosine"}),
        ("corag", {"summarizer": "lead"}),
    ],
)
def test_a_setting_that_no_method_takes_is_refused(methods, given):
    [name] = given
    with pytest.raises(InputError, match=name):
        EvaluateConfig(data="d", methods=methods, **given).check_used()
    EvaluateConfig(data="d", methods="naive,corag,edc2", **given).check_used()


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
    expected = [name for name in SELECTORS.names if name not in ("corag-fixed", "lacking")]
    assert list(methods.selectors) == [*expected, "top-k(k=3)"] and "mine" in expected
    assert list(methods.left_out) == ["corag-fixed", "lacking"]
    assert list(make_methods("all", offered(reranker=None, agent=str(small_checkpoint))).left_out) == ["lacking"]
    with pytest.raises(MissingExtraError):
        make_methods("lacking", offered())
