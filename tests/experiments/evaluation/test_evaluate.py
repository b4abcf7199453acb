import json
from collections import Counter

import pytest

import corag
from corag.errors import MissingExtraError, ReaderError
from corag.registry import READERS, SELECTORS
from corag.selectors import TopK
from experiments.evaluation.comparison import compare
from experiments.evaluation.config import EvaluateConfig, QuestionSet
from experiments.evaluation.methods import make_methods, trained_hash
from experiments.report.measures import MEASURES
from experiments.report.results import Result
from tests.experiments.worlds import DOCUMENTS, QUERIES, evaluate, rows_of
from tests.fakes import FakeReader

DESIGN_KEYS = {
    "method", "rouge1", "rouge2", "rougeL", "f1", "em", "evidence_recall", "evidence_precision", "full_evidence",
    "cost_tokens", "chunks", "over_budget", "latency_ms_median", "latency_ms_p95", "scorer_calls", "orders_scored",
    "truncated",
}  # fmt: skip
TOP_KEYS = {"data", "split", "budget_tokens", "queries", "pool", "methods", "config", "versions", "seed"}
METHODS = "top-k,naive,corag,corag(agent=none),upper"
RANKING_KEYS = {"nDCG@10", "RR@10", "R@20"}


def config_of(data, **settings):
    return EvaluateConfig(
        **{"data": str(data), "methods": "top-k,corag", "budget": 48, "curves": False, "quiet": True, **settings}
    )


@pytest.mark.slow
def test_a_result_has_the_figures_of_every_method(tmp_path, small_data, small_index, small_checkpoint):
    out = tmp_path / "runs" / "result.json"
    config = config_of(
        small_data,
        methods=METHODS,
        pool="corpus",
        index=str(small_index),
        num_candidates=6,
        agent=str(small_checkpoint),
        out=str(out),
    )
    result = evaluate(config)
    assert json.loads(out.read_text()) == result
    assert set(result) == TOP_KEYS | {
        "queries_without_gold", "left_out", "work", "measures", "retriever", "parts", "tokenizer", "exact",
        "budget_for", "models", "main_measure",
    }  # fmt: skip
    assert result["pool"] == "corpus"
    assert (result["split"], result["budget_tokens"], result["seed"]) == ("dev", 48, 0)
    assert (result["queries"], result["queries_without_gold"]) == (4, 1)
    assert "out" not in result["config"]
    assert set(result["versions"]) >= {"python", "corag", "numpy", "scikit-learn"}
    assert [row["method"] for row in result["methods"]] == METHODS.split(",")
    for row in result["methods"]:
        assert DESIGN_KEYS | RANKING_KEYS <= set(row) <= {"method", *MEASURES} | RANKING_KEYS
        assert row["over_budget"] == row["truncated"] == row["empty"] == 0
        assert 0 < row["cost_tokens"] <= 48
        assert 0 < row["latency_ms_median"] <= row["latency_ms_p95"]
        assert 0 < row["warm_latency_ms_median"] <= row["warm_latency_ms_p95"]
        assert (row["orders_scored"] > 0) == (row["scorer_calls"] > 0) == (row["method"] != "top-k")
    written = {"result.json", "result.rows.jsonl", "result.runs", "result.html", "result.md"}
    assert {path.name for path in out.parent.iterdir()} == written
    assert all(name in out.with_suffix(".md").read_text() for name in METHODS.split(","))


@pytest.mark.slow
def test_rows_tell_what_was_chosen_and_answered(tmp_path, small_data):
    out = tmp_path / "result.json"
    evaluate(config_of(small_data, methods="top-k,naive", out=str(out)))
    rows = rows_of(out)
    assert Counter(row["method"] for row in rows) == {"top-k": 4, "naive": 4}
    texts = {row["id"]: f"{row['title']}\n{row['text']}" for row in DOCUMENTS}
    queries = {row["id"]: row for row in QUERIES}
    for row in rows:
        query = queries[row["query"]]
        context = "\n\n".join(texts[name] for name in row["ids"])
        assert row["cost_tokens"] == corag.tokens().count([context])[0]
        assert row["chunks"] == len(row["ids"])
        assert row["answer"] == corag.reader("extractive").answer(query["question"], context).text
        assert ("f1" in row, "evidence_recall" in row) == (bool(query["answers"]), bool(query["gold"]))
        if query["gold"]:
            assert row["evidence_recall"] == len({*row["ids"]} & {*query["gold"]}) / len(query["gold"])


@pytest.mark.slow
def test_a_method_that_fails_on_a_question_stops_no_other(tmp_path, small_data):
    # Of six candidates 1,956 orders fit, so that a bound of 9 is passed at once but by the small pool of q9.
    out = tmp_path / "r.json"
    config = config_of(small_data, methods="top-k,upper(max_orders=9),upper", budget=400, reranker="bm25", out=str(out))
    by_method = {row["method"]: row for row in evaluate(config)["methods"]}
    assert (by_method["top-k"]["failed"], by_method["upper"]["failed"]) == (0, 0)
    failing = by_method["upper(max_orders=9)"]
    assert failing["failed"] == 4
    assert "max_orders" in failing["error"]
    assert failing["cost_tokens"] is failing["f1"] is failing["latency_ms_median"] is None
    assert failing["tes"] is failing["diff_k"] is None
    assert [row["failed"] for row in rows_of(out)] == [0] * 4 + [1] * 4 + [0] * 4
    assert evaluate(config)["methods"] == list(by_method.values())


def test_a_result_without_its_rows_is_measured_again(tmp_path, small_data):
    config = config_of(small_data, methods="top-k", reader="none", latency_questions=0, out=str(tmp_path / "r.json"))
    rows, of_first = tmp_path / "r.rows.jsonl", evaluate(config)
    rows.unlink()
    assert evaluate(config) == of_first and rows.exists()


def test_what_a_set_leaves_open_is_as_given_for_all():
    sets = (QuestionSet("a", "one"), QuestionSet("b", "two", "train", limit=2, pool="corpus", reranker="bm25"))
    config = EvaluateConfig("folder", sets=sets, limit=5, split="test", reranker="minilm-cosine", history="all")
    one, two = config.by_set().values()
    assert (one.data, one.split, one.limit, one.pool, one.history) == ("folder/one", "test", 5, "auto", "all")
    assert (two.data, two.split, two.limit, two.pool, two.history) == ("folder/two", "train", 2, "corpus", "all")
    assert (one.reranker, two.reranker) == ("minilm-cosine", "bm25")
    # One that names the split that would be compared otherwise means it.
    config = EvaluateConfig(sets=(QuestionSet("a", "one", "dev"),), split="test")
    assert config.by_set()["a"].split == "dev"


def test_what_was_trained_anew_is_other_work(tmp_path):
    named = [f"corag(agent={tmp_path})", f"naive(reranker=fused(signals=[bm25, cross-encoder(model={tmp_path})]))"]
    (tmp_path / "config.json").write_text("{}")
    before = trained_hash(str(tmp_path), named)
    (tmp_path / "config.json").write_text("{ }")
    assert len(before) == 3 and not set(before) & set(trained_hash(str(tmp_path), named))
    assert trained_hash("none", ["top-k", "corag(agent=none, reranker=cosine(encoder=e5))", "crag(x=a (b)"]) == []


def test_a_server_that_is_down_stops_the_comparison(small_data, monkeypatch):
    monkeypatch.setitem(READERS.parts, "down", lambda: FakeReader(ReaderError("no server at nowhere")))
    for methods in ("top-k", "self-route(part=top-k, full=full)"):
        with pytest.raises(ReaderError, match="nowhere"):
            evaluate(config_of(small_data, methods=methods, reader="down"))


@pytest.mark.slow
def test_several_sets_at_several_budgets_are_compared_at_once(tmp_path, small_data, reader):
    out = tmp_path / "out"
    sets = (
        QuestionSet("early", small_data.name, "train", limit=3),
        QuestionSet("late", small_data.name, "dev", sample=2),
    )
    given = {"sets": sets, "budgets": (24, 48), "methods": "top-k,corag,edc2", "out": str(out)}
    given |= {"reader": "first-words", "reranker": "bm25", "latency_questions": 1, "curves": True}
    results = compare(config_of(small_data.parent, **given))
    for name, number in (("early", 3), ("late", 2)):
        for result in results[name]:
            assert (result.questions, result.record["pool"]) == (number, "candidates")
            assert all(row["latency_ms_p95"] >= row["latency_ms_median"] > 0 for row in result.record["methods"])
            stored = Result.read(out / f"{name}-{result.budget}.json")
            assert stored.record["work"] == result.record["work"] and stored.rows == result.rows
    text = (out / "comparison.md").read_text()
    assert "## early: 3 questions" in text and "## late: 2 questions" in text
    names = [f"{name}-{budget}" for name in ("early", "late") for budget in (24, 48)]
    assert "Means of 2 data sets" in text and (out / "comparison.html").read_text().count("<svg") == 3
    assert {path.name for path in out.iterdir()} == {
        "comparison.html", "comparison.md", "early.journal.jsonl", "late.journal.jsonl",
        *(f"{name}{ending}" for name in names for ending in (".json", ".rows.jsonl", ".runs")),
    }  # fmt: skip


def offered(**settings):
    return {
        "tokenizer": corag.tokens(), "reranker": "bm25", "agent": None,
        "reader": "extractive", "summarizer": "extractive", "embedder": corag.embedder(), **settings,
    }  # fmt: skip


def test_all_stands_for_what_can_run(small_checkpoint, monkeypatch):
    def lacking(**settings):
        raise MissingExtraError("pip install 'corag[some]'")

    monkeypatch.setitem(SELECTORS.parts, "mine", TopK)
    monkeypatch.setitem(SELECTORS.parts, "lacking", lacking)
    methods = make_methods("all,top-k(k=3)", offered())
    expected = [name for name in SELECTORS.names if name != "lacking"]
    assert list(methods.selectors) == [*expected, "top-k(k=3)"] and "mine" in expected
    assert list(methods.left_out) == ["lacking"]
    assert list(make_methods("all", offered(reranker=None, agent=str(small_checkpoint))).left_out) == ["lacking"]
    with pytest.raises(MissingExtraError):
        make_methods("lacking", offered())
