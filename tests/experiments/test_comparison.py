"""The comparison on several sets: its figures are those of `corag evaluate`, whatever methods share."""

import json
from pathlib import Path

import pytest

from corag.errors import InputError
from corag.registry import READERS
from experiments.evaluation.comparison import ComparisonConfig, QuestionSet, comparison, main
from experiments.evaluation.comparison_tables import COLUMNS, markdown, methods_plot
from experiments.evaluation.evaluate import EvaluateConfig, evaluate
from tests.experiments.test_evaluate import FirstWords
from tests.experiments.worlds import same

METHODS = "top-k,naive,corag,edc2,naive:reranker=bm25"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def reader(monkeypatch):
    reader = FirstWords()
    monkeypatch.setitem(READERS._parts, "first-words", lambda: reader)
    return reader


def config_of(data, out, **settings):
    sets = [QuestionSet("early", data.name, "train", limit=3), QuestionSet("late", data.name, "dev", sample=2)]
    defaults = {
        "sets": sets, "root": str(data.parent), "methods": METHODS, "budgets": (24, 48), "reader": "first-words",
        "reranker": "bm25", "latency_questions": 1, "out": str(out), "quiet": True,
    }  # fmt: skip
    return ComparisonConfig(**defaults | settings)


def test_figures_are_those_of_evaluate(tmp_path, small_data, reader):
    out = tmp_path / "out"
    results = comparison(config_of(small_data, out, figure=str(tmp_path / "figure.svg")))
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
    assert text.count("| naive:reranker=bm25 |") == 2
    svg = (tmp_path / "figure.svg").read_text()
    assert svg.startswith("<svg") and "early (3 questions)" in svg and "naive:reranker=bm25" in svg
    assert sorted(path.suffix for path in out.iterdir()) == [".json"] * 4 + [".jsonl"] * 4 + [".md"]


def test_what_is_done_is_not_done_again(tmp_path, small_data, reader):
    config = config_of(small_data, tmp_path / "out", methods="top-k,naive")
    whole = comparison(config)
    num_asked, reader.asked, reader.patience = len(reader.asked), [], 0
    assert comparison(config) == whole
    broken = config_of(small_data, tmp_path / "broken", methods="top-k,naive")
    for patience in (0, 5, 10**9):
        reader.patience = len(reader.asked) + patience
        try:
            found = comparison(broken)
        except KeyboardInterrupt:
            assert not list((tmp_path / "broken").glob("*.json"))
    assert len(reader.asked) < 2 * num_asked
    for name, results in found.items():
        for result, other in zip(results, whole[name], strict=True):
            for row in (*result["methods"], *other["methods"]):
                del row["latency_ms_median"], row["latency_ms_p95"]
            assert same(result["methods"], other["methods"])


def test_one_set_at_a_time(tmp_path, small_data, reader):
    config = config_of(small_data, tmp_path, methods="top-k", only="late")
    assert list(comparison(config)) == ["late"]
    asked = len(reader.asked)
    assert list(comparison(config_of(small_data, tmp_path, methods="top-k"))) == ["early", "late"]
    assert not any(question in dict(reader.asked[:asked]) for question, _ in reader.asked[asked:])


def test_a_table_by_hand():
    row = dict.fromkeys(COLUMNS, 0.5) | {"method": "a", "cost_tokens": 99.6, "latency_ms_median": None, "failed": 0}
    row["f1"] = 1.0
    bad = row | {"method": "b", "failed": 2, "error": "InputError: no"}
    results = [
        {"budget_tokens": budget, "queries": 2, "methods": [row, bad], "left_out": {"c": "no package"}}
        for budget in (64, 128)
    ]
    assert markdown("few", results).splitlines() == [
        "### few: 2 questions at 64 / 128 tokens",
        "",
        "| method | tokens | recall | precision | all evidence | F1 | TES | diff-k | ms |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| a | 100 / 100 | .50 / .50 | .50 / .50 | .50 / .50 | 1.00 / 1.00 | .50 / .50 | 0.5 / 0.5 | - / - |",
        "| b | - / - | - / - | - / - | - / - | - / - | - / - | - / - | - / - |",
        "",
        "b failed on 2 of 2 questions at 128 tokens; the first: InputError: no",
        "",
        "c is left out: no package",
    ]
    assert "few (2 questions)" in methods_plot({"few": results})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sets": []}, r"the sets are called \(none\)"),
        ({"sets": [QuestionSet("a", "x"), QuestionSet("a", "y")]}, "the sets are called a, a"),
        ({"only": "late,never"}, "only names never, but the sets are called early, late"),
        ({"budgets": (0, 5)}, r"budgets are \(0, 5\)"),
        ({"latency_questions": 0}, "latency_questions must be at least 1, got 0"),
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


def test_the_config_of_the_project_from_the_command_line(tmp_path, capsys):
    # It is read as a whole before the data is looked for.
    config = ROOT / "experiments" / "configs" / "comparison.yaml"
    assert main(["--config", str(config), "--root", str(tmp_path), "--out", str(tmp_path), "--figure", "null"]) == 2
    assert f"{tmp_path / 'hotpotqa'} is not a folder" in "".join(capsys.readouterr().out.split("\n"))
