"""The comparison on several sets: its figures are those of `corag evaluate`, whatever methods share."""

import json

import pytest

from corag.cli.main import main
from corag.errors import InputError
from experiments.evaluation.comparison import compare, evaluate
from experiments.evaluation.config import EvaluateConfig, QuestionSet
from experiments.run.report import quality_plot
from experiments.run.tables import BRIEF, markdown
from tests.experiments.worlds import QUERIES, same
from tests.paths import ROOT

METHODS = "top-k,naive,corag,edc2,naive(reranker=bm25)"


def config_of(data, out, **settings):
    sets = (QuestionSet("early", data.name, "train", limit=3), QuestionSet("late", data.name, "dev", sample=2))
    defaults = {
        "sets": sets, "data": str(data.parent), "methods": METHODS, "budgets": (24, 48), "reader": "first-words",
        "reranker": "bm25", "latency_questions": 1, "out": str(out), "quiet": True,
    }  # fmt: skip
    return EvaluateConfig(**defaults | settings)


@pytest.mark.slow
def test_figures_are_those_of_evaluate(tmp_path, small_data, reader):
    out = tmp_path / "out"
    results = compare(config_of(small_data, out, figure=str(tmp_path / "figure.svg"))).results
    stored = json.loads((out / "comparison.json").read_text())
    assert stored["results"] == json.loads(json.dumps(results)) and stored["leads"] == stored["diversity"] == []
    for name, split, limit, sample in (("early", "train", 3, None), ("late", "dev", None, 2)):
        for result in results[name]:
            budget = result["budget_tokens"]
            expected = evaluate(
                EvaluateConfig(
                    str(small_data),
                    split,
                    METHODS,
                    budget=budget,
                    reranker="bm25",
                    reader="first-words",
                    limit=limit,
                    sample=sample,
                    quiet=True,
                )
            )
            assert (result["queries"], result["pool"]) == (expected["queries"], "candidates")
            for row, other in zip(result["methods"], expected["methods"], strict=True):
                assert row["latency_ms_p95"] >= row["latency_ms_median"] > 0
                for one in (row, other):
                    del one["latency_ms_median"], one["latency_ms_p95"]
                assert same(row, other)
            assert json.loads((out / f"{name}-{budget}.json").read_text())["work"] == result["work"]
            lines = (out / f"{name}-{budget}.rows.jsonl").read_text().splitlines()
            assert len(lines) == 5 * result["queries"]
    text = (out / "comparison.md").read_text()
    assert "### early: 3 questions at 24 / 48 tokens" in text and "### late: 2 questions" in text
    assert text.count("| naive(reranker=bm25) |") == 2
    svg = (tmp_path / "figure.svg").read_text()
    assert svg.startswith("<svg") and "early (3 questions)" in svg and "naive(reranker=bm25)" in svg
    names = [f"{name}-{budget}" for name in ("early", "late") for budget in (24, 48)]
    assert {path.name for path in out.iterdir()} == {
        "comparison.json", "comparison.md", "early.journal.jsonl", "late.journal.jsonl",
        *(f"{name}{ending}" for name in names for ending in (".json", ".rows.jsonl", ".runs")),
    }  # fmt: skip


@pytest.mark.slow
def test_what_is_done_is_not_done_again(tmp_path, small_data, reader):
    config = config_of(small_data, tmp_path / "out", methods="top-k,naive")
    whole = compare(config).results
    num_asked, reader.asked, reader.patience = len(reader.asked), [], 0
    assert compare(config).results == whole
    broken = config_of(small_data, tmp_path / "broken", methods="top-k,naive")
    for patience in (0, 5, 10**9):
        reader.patience = len(reader.asked) + patience
        try:
            found = compare(broken).results
        except KeyboardInterrupt:
            assert not list((tmp_path / "broken").glob("comparison.json"))
    assert len(reader.asked) < 2 * num_asked
    for name, results in found.items():
        for result, other in zip(results, whole[name], strict=True):
            for row in (*result["methods"], *other["methods"]):
                del row["latency_ms_median"], row["latency_ms_p95"]
            assert same(result["methods"], other["methods"])


@pytest.mark.slow
def test_one_set_at_a_time(tmp_path, small_data, reader):
    config = config_of(small_data, tmp_path, methods="top-k", only="late")
    assert list(compare(config).results) == ["late"]
    asked = len(reader.asked)
    assert list(compare(config_of(small_data, tmp_path, methods="top-k")).results) == ["early", "late"]
    assert not any(question in dict(reader.asked[:asked]) for question, _ in reader.asked[asked:])


@pytest.mark.slow
def test_another_limit_goes_on_with_the_same_rows(tmp_path, small_data, reader):
    def sets(limit):
        return (QuestionSet("one", small_data.name, "train", limit=limit),)

    one_budget = {"budgets": (), "budget": 48, "latency_questions": 0}
    compare(config_of(small_data, tmp_path, methods="top-k,corag", **one_budget, sets=sets(3)))
    num_asked = len(reader.asked)
    fewer = compare(config_of(small_data, tmp_path, methods="top-k,corag", **one_budget, sets=sets(2)))
    assert len(reader.asked) == num_asked
    assert [result["queries"] for result in fewer.results["one"]] == [2]
    assert (tmp_path / "one-48.json").is_file()
    assert all(row["latency_ms_median"] is None for result in fewer.results["one"] for row in result["methods"])
    compare(config_of(small_data, tmp_path, methods="top-k,corag", **one_budget, sets=sets(4)))
    assert {question for question, _ in reader.asked[num_asked:]} == {QUERIES[3]["question"]}


def test_nothing_is_read_without_a_reader(tmp_path, small_data):
    config = EvaluateConfig(
        str(small_data), methods="top-k(k=1),car", reader="none", budgets=(10**9,), baselines=("top-k(k=1)",),
        challengers=("car",), quiet=True,
    )  # fmt: skip
    found = compare(config)
    [result] = found.results[small_data.name]
    assert all(row["f1"] is None and row["evidence_recall"] > 0 for row in result["methods"])
    [entry] = found.leads
    one, car = result["methods"]
    assert entry["tes"] == pytest.approx(car["tes"] - one["tes"])
    assert entry["tes_low"] <= entry["tes"] <= entry["tes_high"] and "f1" not in entry
    assert f"| {small_data.name} | 1000000000 | car | top-k(k=1) |" in found.markdown


def test_a_table_by_hand():
    row = dict.fromkeys(BRIEF, 0.5) | {"method": "a", "cost_tokens": 99.6, "latency_ms_median": None, "failed": 0}
    del row["judge"]
    row["f1"] = 1.0
    bad = row | {"method": "b", "failed": 2, "error": "InputError: no"}
    results = [
        {"budget_tokens": budget, "queries": 2, "methods": [row, bad], "left_out": {"c": "no package"}, "ceiling": 0.75}
        for budget in (64, 128)
    ]
    assert markdown({"few": results}).splitlines() == [
        "### few: 2 questions at 64 / 128 tokens",
        "",
        "| method | full evidence | evidence recall | evidence precision | tokens | chunks | F1 | exact match "
        "| TES | diff-k |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| a | .500 / .500 | .500 / .500 | .500 / .500 | 99.6 / 99.6 | 0.50 / 0.50 | 1.000 / 1.000 | .500 / .500 "
        "| .500 / .500 | 0.50 / 0.50 |",
        "| b | - / - | - / - | - / - | - / - | - / - | - / - | - / - | - / - | - / - |",
        "| (evidence that fits) | .750 / .750 |  |  |  |  |  |  |  |  |",
        "",
        "b failed on 2 of 2 questions at 128 tokens; the first: InputError: no",
        "",
        "c is left out: no package",
    ]
    assert "few (2 questions)" in quality_plot({"few": results})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sets": (QuestionSet("a", "x"), QuestionSet("a", "y"))}, "the sets are called a, a"),
        ({"only": "late,never"}, "only names never, but the sets are called early, late"),
        ({"budgets": (0, 5)}, r"budgets are \(0, 5\)"),
        ({"budgets": (5, 5)}, r"budgets are \(5, 5\)"),
        ({"baselines": ("top-k",), "challengers": ("best",)}, "'best' is not part of this comparison"),
        ({"baselines": ("top-k",)}, "baselines and challengers go together"),
        ({"latency_questions": -1}, "latency_questions must be at least 0, got -1"),
    ],
)
def test_settings_that_cannot_be(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        config_of(tmp_path, tmp_path, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"name": "../a"}, "a set is called '../a'"), ({"name": "a", "sample": 0}, "sample must be at least 1, got 0")],
)
def test_sets_that_cannot_be(settings, message):
    with pytest.raises(InputError, match=message):
        QuestionSet(data="x", **settings)


@pytest.mark.parametrize("name", ["comparison", "compare-adapters", "tes"])
def test_the_configs_of_the_project_from_the_command_line(tmp_path, capsys, name):
    # Each is read as a whole before the data is looked for.
    config = ROOT / "experiments" / "configs" / f"{name}.yaml"
    assert main(["evaluate", "--config", str(config), "--data", str(tmp_path / "x"), "--out", str(tmp_path)]) == 2
    assert "is not a folder" in " ".join(capsys.readouterr().err.split())
