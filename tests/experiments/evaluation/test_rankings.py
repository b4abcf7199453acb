"""Measures of rankings."""

import math

import pytest

from corag.types import Chunk
from experiments.evaluation.comparison import evaluate
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.rankings import ranking_of
from experiments.report.comparison import terminal_page
from experiments.report.results import Result
from tests.experiments.worlds import rows_of, write_folder


def chunk(name, document=None, start=0, end=10):
    return Chunk(name, name, {} if document is None else {"document": document, "start": start, "end": end})


def test_chunks_stand_for_their_passages_and_for_spans_of_gold():
    chunks = [chunk("a#0-10", "a"), chunk("b"), chunk("a#10-20", "a", 10, 20), chunk("a#20-30", "a", 20, 30)]
    assert ranking_of(chunks, []) == ["a", "b"]
    assert ranking_of(chunks, ["a"]) == ["a", "b"]
    # Half of the span is enough; the first chunk stands for no gold.
    assert ranking_of(chunks, ["a#12-24"]) == ["a", "b", "a#12-24"]
    assert ranking_of(chunks, ["a#10-14", "a#12-18", "c"]) == ["a", "b", "a#10-14", "a#12-18"]
    assert ranking_of([], ["a"]) == []


QUESTIONS = [
    {"id": "q1", "question": "Who?", "grades": {"varn": 2, "tolmere": 1, "pine": 0}, "candidates": ["tolmere", "varn"]},
    {"id": "q2", "question": "What?", "gold": ["sable"], "candidates": ["oro", "kell"]},
    {"id": "q3", "question": "Why?", "gold": [], "candidates": ["kell"]},
]


@pytest.fixture
def judged(tmp_path):
    """Three questions with judgements and without answers, one of which has no relevant passage."""
    rows = [{**row, "split": "test"} for row in QUESTIONS]
    return write_folder(tmp_path / "judged", queries=rows)


def test_a_ranking_is_measured_by_its_grades(tmp_path, judged):
    out = tmp_path / "result.json"
    config = {"split": "test", "methods": "full", "reader": "none", "budget": 400, "measures": "nDCG@10,RR@10,R@20,AP"}
    result = evaluate(EvaluateConfig(data=str(judged), out=str(out), quiet=True, latency_questions=0, **config))
    assert (result["pool"], result["queries"], result["queries_without_gold"]) == ("candidates", 3, 1)
    rows = rows_of(out)
    # By hand, in whichever order the embedder puts them: of two questions one has both passages, the other none.
    gains = {"varn": 2, "tolmere": 1}
    first, second = (gains[name] for name in rows[0]["ranking"])
    best = 2 + 1 / math.log2(3)
    expected = {"nDCG@10": (first + second / math.log2(3)) / best / 2, "RR@10": 1 / 2, "R@20": 1 / 2, "AP": 1 / 2}
    assert {name: result["retriever"][name] for name in expected} == pytest.approx(expected)
    assert rows[0]["RR@10"] == 1 and "RR@10" not in rows[2]


def test_without_answers_nothing_is_read_and_the_result_says_why(judged, reader, capsys):
    config = {"split": "test", "methods": "top-k", "reader": "first-words", "budget": 400, "quiet": True}
    result = evaluate(EvaluateConfig(data=str(judged), latency_questions=0, **config))
    assert reader.asked == []
    assert result["skip_reason"] == f"no question of {judged}, test, has reference answers, so nothing is read"
    [row] = result["methods"]
    assert row["f1"] is row["em"] is row["rougeL"] is None and row["evidence_recall"] > 0 and row["nDCG@10"] > 0
    terminal_page(Result(result), "Judged").show()
    printed = " ".join(capsys.readouterr().out.split())
    assert "no measures of answers: no question of" in printed and "nDCG@10" in printed
    assert "candidates: evidence recall" in printed and "ROUGE" not in printed
