"""Measures and differences worked out by hand, and the one entry that a new measure takes."""

from math import log
from types import SimpleNamespace

import numpy as np
import pytest

import corag
from corag.budget import Budget
from corag.errors import InputError
from corag.text.documents import passage
from corag.text.units import units
from corag.types import Chunk, Selection
from experiments.evaluation.comparison import compare
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.measure import Measuring
from experiments.evaluation.outcome import Outcome
from experiments.evaluation.support import Support
from experiments.report.comparison import results_page
from experiments.report.difference import RESAMPLES, paired_difference
from experiments.report.measures import MEASURES, Measure, measured, summaries
from experiments.report.results import Result
from tests.experiments.evaluation.test_support import DOCUMENTS, LAKE, MILL, query

RANKING = [Chunk("a", "one two three four"), Chunk("b", "five six"), Chunk("c", "seven")]


def outcome(chunks, text=None, *, of=None, cost=3, ranking=RANKING, **settings):
    text = "\n\n".join(chunk.text for chunk in chunks) if text is None else text
    selection = Selection(tuple(chunks), text, cost, 20, value=0.5, method="some")
    parts = (Budget(20, None, "context"), corag.tokens(), corag.embedder())
    return Outcome(of or query(gold=("a", "b")), selection, ranking, *parts, **settings)


def test_a_new_measure_is_one_entry(tmp_path, small_data, reader, monkeypatch, capsys):
    monkeypatch.setitem(MEASURES, "letters", Measure("letters", "letters", of=lambda one: len(one.selection.text)))
    out = tmp_path / "r.json"
    methods = "top-k,naive"
    config = EvaluateConfig(str(small_data), methods=methods, budget=48, reader="first-words", out=str(out), quiet=True)
    compare(config)
    result = Result.read(out)
    for method in methods.split(","):
        letters = [row["letters"] for row in result.rows[method]]
        assert result.value(method, "letters") == sum(letters) / len(letters) > 0
    page = results_page({"a": [result]})
    page.show()
    assert "letters" in capsys.readouterr().out
    assert "letters" in page.html() and "letters" in page.markdown()


def test_measures_of_answers_and_evidence():
    found = measured(outcome(RANKING[:1], of=query(("one",), ("a", "b")), answer="One two"))
    assert (found["f1"], found["em"], found["sub_em"], found["rougeL"]) == pytest.approx((2 / 3, 0, 1, 2 / 3))
    assert (found["evidence_recall"], found["evidence_precision"], found["full_evidence"]) == (0.5, 1.0, 0.0)
    assert (found["cost_tokens"], found["chunks"], found["over_budget"], found["diff_k"]) == (4, 1, 0, 1)
    neither = measured(outcome(RANKING[:1], of=query((), ()), answer="One two"))
    assert not {"f1", "evidence_recall", "diff_k", "answer_in_context"} & neither.keys()
    unanswerable = measured(outcome(RANKING[:1], of=query(("no one",), (), answerable=False), answer="No one"))
    assert unanswerable["em"] == 1 and not {"answer_recall", "context_recall"} & unanswerable.keys()
    parts = SimpleNamespace(tokens=corag.tokens(), embedder=corag.embedder(), reader=None, judge=None)
    measuring = Measuring({"top-k": corag.selector("top-k")}, Budget(20, None, "context"), parts)
    asked = query(("no one",), ("a",), answerable=False), [corag.Candidate(chunk, 0.5) for chunk in RANKING]
    [rows] = measuring.rows([asked])
    assert not {"answer_recall", "context_recall", "evidence_recall", "diff_k"} & rows["top-k"].keys()
    verdict = measured(outcome(RANKING[:1], of=query(("No.", "no")), answer="No"))
    assert (
        verdict["em"] == 1
        and "answer_recall" not in verdict
        and verdict["context_recall"] == verdict["evidence_recall"]
    )


def test_the_budget_is_counted_anew():
    lie = Selection((RANKING[0],), RANKING[0].text, 1, 3, value=0.5, method="liar")
    found = measured(Outcome(query(), lie, RANKING, Budget(3, None, "context"), corag.tokens(), corag.embedder()))
    assert (found["cost_tokens"], found["over_budget"]) == (4, 1)


def test_measures_of_sentences():
    of = query(gold=("lake", "mill"), supporting_facts=[["lake", [1]], ["mill", [0]]])
    lake, mill = units(passage(LAKE), 1), units(passage(MILL), 1)

    def found(chunks, text):
        values = measured(outcome(chunks, text, of=of, support=Support.of(of, DOCUMENTS)))
        return values["sentence_recall"], values["full_sentences"], values["answer_in_context"]

    assert found([lake[1], mill[0]], f"{lake[1].text}\n\n{mill[0].text}") == (1.0, 1.0, 1.0)
    assert found([lake[0], mill[0]], f"{lake[0].text}\n\n{mill[0].text}") == (0.5, 0.0, 0.0)


def test_trade_off_efficiency_gives_the_table_of_the_paper():
    # Table 1 of CAR, from its rounded accuracies and candidates.
    for accuracy, chunks, expected in ((0.97, 3.0, 0.700), (0.99, 5.0, 0.553), (1.0, 10.0, 0.417), (0.0, 0.0, 0.0)):
        rows = [{"full_evidence": accuracy, "chunks": chunks}]
        assert MEASURES["tes"].summary(rows) == pytest.approx(expected, abs=6e-4)


def test_summaries_by_hand():
    rows = [
        {"failed": 0, "over_budget": 1, "latency_ms": 1.0, "f1": 0.5, "cost_tokens": 10},
        {"failed": 1, "error": "E: too much"},
        {"failed": 0, "over_budget": 1, "latency_ms": 3.0, "f1": 1.0, "cost_tokens": 60},
    ]
    found = summaries(rows)
    assert (found["f1"], found["cost_tokens"], found["over_budget"], found["failed"]) == (0.75, 35.0, 2, 1)
    assert (found["latency_ms_median"], found["latency_ms_p95"]) == (2.0, pytest.approx(2.9))
    # Nobody has these: 0 for what is counted, null for the others, nothing where nobody was asked.
    assert (found["truncated"], found["evidence_recall"], found["tes"]) == (0, None, None)
    assert found["error"] == "E: too much"
    assert "judge" not in found and "accuracy" not in found
    judged = summaries([{"failed": 0, "judged": ["judge"], "judge_unusable": 1}])
    assert (judged["judge"], judged["judge_unusable"]) == (None, 1)


def test_differences_are_of_the_questions_that_both_answered():
    names = ("full_evidence", "evidence_recall", "chunks", "f1")
    three = [dict(zip(names, row, strict=True)) for row in ((1, 1.0, 3, 0.5), (1, 1.0, 3, 1.0))]
    cut = [dict(zip(names, row, strict=True)) for row in ((1, 1.0, 1, 0.5), (0, 0.5, 2, 0.0))]
    assert MEASURES["tes"].difference(cut, three).mean == pytest.approx(0.5 / log(2.5) - 1 / log(4))
    assert MEASURES["recall_tes"].difference(cut, three).mean == pytest.approx(0.75 / log(2.5) - 1 / log(4))
    assert MEASURES["f1"].difference([*cut, {"failed": 1}], [*three, {"f1": 1.0}]).mean == -0.5
    assert MEASURES["f1"].difference([{"failed": 1}], [{"f1": 1.0}]) is None
    assert MEASURES["latency_ms_median"].difference([{"latency_ms": 1.0}]) is None


def test_pairs_that_all_differ_alike_are_certain():
    found = paired_difference([0.75] * 8, [0.5] * 8)
    assert (found.mean, found.low, found.high, found.p, found.n) == (0.25, 0.25, 0.25, 1 / RESAMPLES, 8)
    assert found.is_certain and f"{found}" == "+0.250 (+0.250 to +0.250)"


def test_the_interval_of_a_coin():
    found = paired_difference([0.0, 1.0] * 50)
    assert 0.38 < found.low < 0.45 < found.mean == 0.5 < 0.55 < found.high < 0.62
    even = paired_difference([0.0, 1.0] * 50, [1.0, 0.0] * 50)
    assert not even.is_certain and even.p > 0.8


def test_questions_that_share_a_document_count_as_one():
    rng = np.random.default_rng(0)
    by_group = rng.normal(0.1, 1, 20).repeat(30)
    groups = [f"{index // 30:02}" for index in range(600)]
    alone, grouped = paired_difference(by_group), paired_difference(by_group, groups=groups)
    assert grouped.mean == alone.mean
    # Thirty copies of each tell no more than one.
    assert (grouped.high - grouped.low) / (alone.high - alone.low) == pytest.approx(30**0.5, rel=0.15)
    once = paired_difference(by_group[::30])
    assert (grouped.low, grouped.high) == pytest.approx((once.low, once.high))


@pytest.mark.parametrize("pair", [([], []), ([1.0], [1.0, 2.0])])
def test_questions_without_a_partner_are_refused(pair):
    with pytest.raises(InputError):
        paired_difference(*pair)
