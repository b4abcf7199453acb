import pytest

import corag
from corag.errors import InputError, MissingExtraError
from corag.registry import SELECTORS
from corag.selectors.base import BudgetedSelector, Choice
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.methods import make_methods
from tests.corag.models.worlds import save_bert

SIX = "top-k,naive,corag,corag(agent=none),corag-fixed,upper"


def offered(**settings):
    return {
        "tokens": corag.tokens(), "reranker": "bm25", "window": "forbid", "agent": None,
        "reader": "extractive", "summarizer": "extractive", "embedder": corag.embedder(), **settings,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("top-k(3)", r"'top-k\(3\)': '3' is no setting; write name\(key=value, ...\), such as top-k\(k=3\)"),
        ("top-q(k=3)", r"selector 'top-q' is unknown \(did you mean 'top-k'\?\); the names are top-k, naive, corag"),
        (
            "top-k(size=3)",
            "selector 'top-k': it has no setting 'size'; its settings are tokens, unit=passage",
        ),
        ("top-k(k=0)", "k must be a whole number of at least 1, got 0"),
        ("top-k(k=three)", "k must be a whole number"),
        ("car(method=best)", "method is 'best'; it must be one of kmeans, dbscan"),
        ("all(k=3)", "selector 'all' is unknown"),
        (" , ", r"methods is ' , '; name at least one of top-k, naive.*, or all"),
        ("corag-fixed", "corag-fixed takes its setting from a checkpoint: give one with --agent"),
    ],
)
def test_methods_that_cannot_be_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        make_methods(text, offered())


def test_selectors_share_no_reranker(small_checkpoint):
    selectors = make_methods(SIX, offered(agent=str(small_checkpoint))).selectors
    assert list(selectors) == SIX.split(",")
    assert selectors["corag"].agent is not None and selectors["corag(agent=none)"].agent is None
    assert (selectors["corag(agent=none)"].name, selectors["corag-fixed"].name) == ("corag", "corag-fixed")
    assert selectors["naive"].reranker.name == selectors["upper"].reranker.name == "bm25"
    assert selectors["naive"].reranker is not selectors["upper"].reranker
    assert {selector.window for name, selector in selectors.items() if name != "top-k"} == {"forbid"}


def test_shared_rerankers_are_one_of_each_name():
    selectors = make_methods("naive,upper,naive(reranker=minilm-maxsim)", offered(), shared=True).selectors
    assert selectors["naive"].reranker is selectors["upper"].reranker
    assert selectors["naive(reranker=minilm-maxsim)"].reranker.name == "minilm-maxsim"


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
def test_presets_get_logits_and_others_do_not(tmp_path, shared):
    model = f"cross-encoder(model={save_bert(tmp_path / 'bert')}, backend=torch)"
    methods = "naive,corag(agent=none),corag(preset=paper),corag(preset=public-code)"
    selectors = make_methods(methods, offered(reranker=model, window="windows"), shared=shared).selectors
    naive, plain, *presets = selectors.values()
    assert [naive.reranker.output, plain._reranker.output] == ["probability"] * 2
    assert [preset._reranker.output for preset in presets] == ["logit"] * 2
    assert (presets[0]._reranker is presets[1]._reranker) == (naive.reranker is plain._reranker) == shared


def test_what_is_offered_goes_to_who_takes_it(small_checkpoint):
    embedder = corag.embedder()
    selectors = make_methods(
        "corag,adaptive-k,crag,self-route,corag(cost_weight=0, reranker=minilm-maxsim)",
        offered(embedder=embedder),
    ).selectors
    assert selectors["corag"]._reranker.name == "bm25"
    own = selectors["corag(cost_weight=0, reranker=minilm-maxsim)"]
    assert (own._reranker.name, own.cost_weight) == ("minilm-maxsim", 0)
    # What it calls a window is a number of documents.
    assert selectors["adaptive-k"]._settings[4] == 5
    assert selectors["crag"]._embedder.embedder is embedder
    assert selectors["self-route"].reader.name == "extractive"
    steered = make_methods("corag,corag(reranker=bm25)", offered(reranker=None, agent=str(small_checkpoint))).selectors
    assert steered["corag"]._reranker is None
    assert steered["corag(reranker=bm25)"]._reranker.name == "bm25"


@pytest.mark.parametrize(
    ("methods", "given", "message"),
    [
        ("top-k,mmr", {"reranker": "bm25"}, "reranker is 'bm25', but none of the methods top-k, mmr takes it"),
        ("naive(reranker=bm25)", {"reranker": "cosine"}, r"naive\(reranker=bm25\) takes it; leave it out, or"),
        ("reorder(selector=top-k)", {"reranker": "bm25"}, "reranker is .bm25., .*, or add one that does"),
        ("corag", {"summarizer": "lead"}, "summarizer is 'lead'"),
        ("naive,upper", {"agent": "checkpoint"}, "agent is 'checkpoint'"),
    ],
)
def test_a_setting_that_no_method_takes_is_refused(methods, given, message):
    with pytest.raises(InputError, match=message):
        EvaluateConfig(data="d", methods=methods, **given).check_used()


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
    assert list(methods.selectors) == [*expected, "top-k(k=3)"]
    assert {"mine", "top-k", "raptor", "self-route"} <= set(expected)
    assert methods.left_out == {
        "corag-fixed": "agent is None; corag-fixed takes its setting from a checkpoint: give one with --agent",
        "lacking": "pip install 'corag[some]'",
    }
    with_agent = make_methods("all", offered(agent=str(small_checkpoint)))
    assert "corag-fixed" in with_agent.selectors
    assert list(with_agent.left_out) == ["lacking"]
    with pytest.raises(MissingExtraError):
        make_methods("lacking", offered())
