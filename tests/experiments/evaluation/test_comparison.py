"""The comparison on several sets: its measures are those of `corag evaluate`, whatever methods share."""

from collections import Counter

import pytest

from corag.text.data import DataFolder
from experiments.data.splits import HELD_OUT, held_out
from experiments.evaluation.comparison import compare, evaluate
from experiments.evaluation.config import EvaluateConfig, QuestionSet
from experiments.report.measures import MEASURES, OF_TIME
from experiments.report.results import Result
from tests.experiments.worlds import QUERIES, same

METHODS = "top-k,corag,edc2"


def config_of(data, out, **settings):
    sets = (QuestionSet("early", data.name, "train", limit=3), QuestionSet("late", data.name, "dev", sample=2))
    defaults = {
        "sets": sets, "data": str(data.parent), "methods": METHODS, "budgets": (24, 48), "reader": "first-words",
        "reranker": "bm25", "latency_questions": 1, "out": str(out), "quiet": True,
    }  # fmt: skip
    return EvaluateConfig(**defaults | settings)


def untimed(result):
    rows = [dict(row) for row in result.record["methods"]]
    for row in rows:
        row |= dict.fromkeys(OF_TIME)
    return rows


@pytest.mark.slow
def test_measures_are_those_of_evaluate(tmp_path, small_data, reader):
    out = tmp_path / "out"
    results = compare(config_of(small_data, out))
    for name, split, limit, sample in (("early", "train", 3, None), ("late", "dev", None, 2)):
        for result in results[name]:
            alone = EvaluateConfig(
                str(small_data), split, METHODS, limit=limit, sample=sample, budget=result.budget, reranker="bm25",
                reader="first-words", curves=False, quiet=True,
            )  # fmt: skip
            expected = evaluate(alone)
            assert (result.questions, result.record["pool"]) == (expected["queries"], "candidates")
            assert all(row["latency_ms_p95"] >= row["latency_ms_median"] > 0 for row in result.record["methods"])
            assert same(untimed(result), untimed(Result(expected)))
            stored = Result.read(out / f"{name}-{result.budget}.json")
            assert stored.record["work"] == result.record["work"] and stored.rows == result.rows
            assert stored.curves == result.curves and bool(stored.curves) == (result.budget == 48)
    text = (out / "comparison.md").read_text()
    assert "## early: 3 questions" in text and "## late: 2 questions" in text
    names = [f"{name}-{budget}" for name in ("early", "late") for budget in (24, 48)]
    assert "## Means of 2 sets" in text and (out / "comparison.html").read_text().count("<svg") == 5
    assert {path.name for path in out.iterdir()} == {
        "comparison.html", "comparison.md", "early.journal.jsonl", "late.journal.jsonl",
        *(f"{name}{ending}" for name in names for ending in (".json", ".rows.jsonl", ".runs")),
        *(f"{name}-48.curves.jsonl" for name in ("early", "late")),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("by_agent", [False, True])
def test_points_of_curves_are_what_their_methods_measure_alone(
    tmp_path, small_data, small_checkpoint, reader, by_agent
):
    given = {"reranker": None, "agent": str(small_checkpoint)} if by_agent else {"reranker": "bm25"}
    sets = (QuestionSet("late", small_data.name),)
    [_, result] = compare(config_of(small_data, tmp_path / "out", sets=sets, **given))["late"]
    assert max(Counter(reader.asked).values()) == 1
    assert {point.curve for point in result.curves} == {"default", "corag", "sentence-threshold", "naive"}
    assert {point.budget for point in result.curves if point.curve == "naive"} > {32, 48}
    for point in result.curves[::4]:
        alone = {"budget": point.budget, "reader": "first-words", "curves": False, "latency_questions": 0, **given}
        [row] = evaluate(EvaluateConfig(str(small_data), methods=point.method, quiet=True, **alone))["methods"]
        for name in ("f1", "evidence_recall", "cost_tokens"):
            assert MEASURES[name].summary(point.rows) == pytest.approx(row[name])


@pytest.mark.slow
def test_the_held_out_part_is_the_share_that_adapters_left_out(tmp_path, small_data, reader):
    folder = DataFolder.open(small_data)
    sets = (QuestionSet("held", small_data.name, "train", "held-out"),)
    [[result]] = compare(config_of(small_data, tmp_path, sets=sets, methods="naive", budgets=(10**6,))).values()
    expected = held_out(folder, folder.split("train"), HELD_OUT)
    assert {row["query"] for row in result.rows["naive"]} == expected and 0 < len(expected) < 5


@pytest.mark.slow
def test_another_limit_goes_on_with_the_same_rows(tmp_path, small_data, reader):
    def run(limit):
        sets = (QuestionSet("set", small_data.name, "train", limit=limit),)
        once = {"methods": "top-k", "budgets": (), "budget": 48, "latency_questions": 0}
        [[result]] = compare(config_of(small_data, tmp_path, **once, sets=sets)).values()
        return result

    run(3)
    num_asked = len(reader.asked)
    fewer = run(2)
    assert len(reader.asked) == num_asked and fewer.questions == 2
    assert fewer.record["methods"][0]["latency_ms_median"] is None
    run(4)
    assert {question for question, _ in reader.asked[num_asked:]} == {QUERIES[3]["question"]}
