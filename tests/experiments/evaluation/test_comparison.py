"""The comparison on several sets: its figures are those of `corag evaluate`, whatever methods share."""

import json
from functools import partial

import pytest

from corag.cli.main import main
from corag.errors import InputError
from experiments.adapters.evidence.config import EvidenceSource
from experiments.evaluation.comparison import compare, evaluate
from experiments.evaluation.config import EvaluateConfig, QuestionSet
from experiments.evaluation.judging.figures import JUDGED
from experiments.run.drawing import quality_plot
from experiments.run.tables import BRIEF, markdown
from tests.experiments.worlds import QUERIES, same
from tests.paths import DATA, ROOT

CONFIGS = ROOT / "experiments" / "configs"
METHODS = "top-k,naive,corag,edc2,naive(reranker=bm25)"


def config_of(data, out, **settings):
    sets = (QuestionSet("early", data.name, "train", limit=3), QuestionSet("late", data.name, "dev", sample=2))
    defaults = {
        "sets": sets, "data": str(data.parent), "methods": METHODS, "budgets": (24, 48), "reader": "first-words",
        "reranker": "bm25", "latency_questions": 1, "out": str(out), "quiet": True,
    }  # fmt: skip
    return EvaluateConfig(**defaults | settings)


def pairs_of(data, out, **changes):
    """Two rerankers under each of two methods, on questions with candidates as in training."""
    settings = {
        "sources": (EvidenceSource(data.name, split="dev", part="all"),),
        "rerankers": ("bm25(b=0.75)", "minilm-factoid"), "budgets": (30, 60), "reader": "first-words",
        "methods": "naive,corag", "baselines": ("bm25 naive",), "challengers": ("minilm-factoid corag",),
        "latency_questions": 0, "quiet": True,
    }  # fmt: skip
    return EvaluateConfig(str(data.parent), out=str(out), **{**settings, **changes})


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
def test_figures_of_pairs_are_those_of_an_evaluation(tmp_path, small_data, reader):
    found = compare(pairs_of(small_data, tmp_path))
    stored = json.loads((tmp_path / "comparison.json").read_text())
    assert (stored["leads"], stored["diversity"]) == (found.leads, found.diversity)
    small, large = found.results[small_data.name]
    # The fourth question of the split has no evidence.
    assert (small["queries"], small["budget_tokens"], large["budget_tokens"]) == (3, 30, 60)
    assert 0 < small["ceiling"] <= large["ceiling"] == 1.0
    settings = EvaluateConfig(
        str(small_data), methods="naive(reranker=bm25)", budget=60, limit=3, reader="first-words", quiet=True
    )
    (expected,) = evaluate(settings)["methods"]
    by_method = {row["method"]: row for row in large["methods"]}
    assert list(by_method) == ["bm25 naive", "bm25 corag", "minilm-factoid naive", "minilm-factoid corag"]
    for name in ("full_evidence", "evidence_precision", "cost_tokens", "f1", "em"):
        assert by_method["bm25 naive"][name] == pytest.approx(expected[name])
    lead = next(entry for entry in found.leads if entry["budget_tokens"] == 60)
    baseline, challenger = by_method["bm25 naive"], by_method["minilm-factoid corag"]
    assert (lead["baseline"], lead["challenger"]) == ("bm25 naive", "minilm-factoid corag")
    assert lead["f1"] == pytest.approx(challenger["f1"] - baseline["f1"])
    assert lead["share_of_tokens"] == pytest.approx(challenger["cost_tokens"] / baseline["cost_tokens"])
    assert lead["f1_low"] <= lead["f1"] <= lead["f1_high"]
    for entry in found.diversity:
        result = small if entry["budget_tokens"] == 30 else large
        means = {row["method"]: row["f1"] for row in result["methods"] if row["method"].endswith(entry["method"])}
        assert entry["best_mean"] == pytest.approx(max(means.values()))
    assert [entry["method"] for entry in found.diversity] == ["naive", "corag"] * 2
    assert "| bm25 naive |" in found.markdown
    assert f"| (evidence that fits) | {small['ceiling']:.3f} / 1.000 |".replace(" 0.", " .") in found.markdown
    assert "an oracle gains" in found.markdown and "| minilm-factoid corag | bm25 naive |" in found.markdown
    # What was encoded and valued is kept for a later run.
    assert (tmp_path / f"{small_data.name}.states.sqlite").is_file()


@pytest.mark.slow
def test_candidates_within_a_corpus_hold_the_evidence(tmp_path, small_data, reader):
    source = EvidenceSource(small_data.name, split="dev", part="all", within="corpus", num_candidates=4)
    [result] = compare(pairs_of(small_data, tmp_path, sources=(source,), budgets=(10**6,))).results.values()
    row = result[0]["methods"][0]
    assert (row["method"], row["chunks"], row["evidence_recall"]) == ("bm25 naive", 4.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("make", [partial(config_of, methods="top-k,naive"), pairs_of], ids=["sets", "pairs"])
def test_what_is_done_is_not_done_again(tmp_path, small_data, reader, make):
    config = make(small_data, tmp_path / "out")
    whole = compare(config)
    num_asked, reader.asked, reader.patience = len(reader.asked), [], 0
    assert compare(config).results == whole.results
    broken = make(small_data, tmp_path / "broken")
    for patience in (0, 5, 10**9):
        reader.patience = len(reader.asked) + patience
        try:
            found = compare(broken)
        except KeyboardInterrupt:
            assert not list((tmp_path / "broken").glob("comparison.json"))
    assert len(reader.asked) < 2 * num_asked
    assert len(found.leads) == len(whole.leads)
    assert all(one == pytest.approx(other) for one, other in zip(found.leads, whole.leads, strict=True))
    for name, results in found.results.items():
        for result, other in zip(results, whole.results[name], strict=True):
            for row in (*result["methods"], *other["methods"]):
                del row["latency_ms_median"], row["latency_ms_p95"]
            assert same(result["methods"], other["methods"])


@pytest.mark.slow
def test_another_limit_of_a_source_goes_on_with_the_same_rows(tmp_path, small_data, reader):
    compare(pairs_of(small_data, tmp_path))
    num_asked = len(reader.asked)
    fewer = (EvidenceSource(small_data.name, split="dev", part="all", limit=2),)
    result = compare(pairs_of(small_data, tmp_path, sources=fewer)).results[small_data.name][0]
    assert result["queries"] == 2 and len(reader.asked) == num_asked


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
    for name in (*JUDGED, "accuracy", "balanced_accuracy", "full_sentences"):
        del row[name]
    row |= {"f1": 1.0, "answer_in_context": 0.25}
    bad = row | {"method": "b", "failed": 2, "error": "InputError: no"}
    results = [
        {"budget_tokens": budget, "queries": 2, "methods": [row, bad], "left_out": {"c": "no package"}, "ceiling": 0.75}
        for budget in (64, 128)
    ]
    assert markdown({"few": results}).splitlines() == [
        "### few: 2 questions at 64 / 128 tokens",
        "",
        "| method | full evidence | evidence recall | evidence precision | answer in context | tokens | chunks | F1 "
        "| exact match | TES | diff-k |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| a | .500 / .500 | .500 / .500 | .500 / .500 | .250 / .250 | 99.6 / 99.6 | 0.50 / 0.50 | 1.000 / 1.000 "
        "| .500 / .500 | .500 / .500 | 0.50 / 0.50 |",
        "| b | - / - | - / - | - / - | - / - | - / - | - / - | - / - | - / - | - / - | - / - |",
        "| (evidence that fits) | .750 / .750 |  |  |  |  |  |  |  |  |  |",
        "",
        "b failed on 2 of 2 questions at 128 tokens; the first: InputError: no",
        "",
        "c is left out: no package",
    ]
    assert "few (2 questions)" in quality_plot({"few": results})


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (config_of, {"sets": (QuestionSet("a", "x"), QuestionSet("a", "y"))}, "the sets are called a, a"),
        (config_of, {"only": "late,never"}, "only names never, but the sets are called early, late"),
        (pairs_of, {"only": "other"}, "only names other, but the sets are called"),
        (config_of, {"budgets": (0, 5)}, "budgets must be a whole number of at least 1, got 0"),
        (config_of, {"budgets": (5, 5)}, r"budgets are \(5, 5\)"),
        (config_of, {"baselines": ("top-k",), "challengers": ("best",)}, "'best' is not part of this comparison"),
        (pairs_of, {"baselines": ("bm25 top-k",)}, "'bm25 top-k' is not part of"),
        (pairs_of, {"instead": {"bm26 corag": "corag"}}, "'bm26 corag' is not part of"),
        (config_of, {"baselines": ("top-k",)}, "baselines and challengers go together"),
        (config_of, {"latency_questions": -1}, "latency_questions must be at least 0, got -1"),
        (pairs_of, {"methods": "all"}, "methods is 'all'; to pair methods with rerankers, name each"),
        (pairs_of, {"rerankers": ("bm25", "bm25(b=0.5)")}, "a reranker or a method stands twice"),
    ],
)
def test_settings_that_cannot_be(tmp_path, make, settings, message):
    with pytest.raises(InputError, match=message):
        make(tmp_path, tmp_path, **settings)


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
    config = CONFIGS / f"{name}.yaml"
    assert main(["evaluate", "--config", str(config), "--data", str(tmp_path / "x"), "--out", str(tmp_path)]) == 2
    assert "is not a folder" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"no data folders at {DATA} (set CORAG_DATA)")
def test_the_config_that_compares_adapters_runs(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("<!-- table -->\n<!-- /table -->\n")
    source = '{"data": "musique", "part": "held-out", "limit": 1}'
    quick = ["--sources", f"[{source}]", "--rerankers", "[minilm-cosine, minilm-multihop]", "--reader", "extractive"]
    where = ["--data", str(DATA), "--out", str(tmp_path), "--write", str(page)]
    assert (
        main(["evaluate", "--config", str(CONFIGS / "compare-adapters.yaml"), *quick, "--budgets", "[128]", *where])
        == 0
    )
    tables = capsys.readouterr().out
    assert tables.strip() in page.read_text()
    assert "musique: 1 questions at 128 tokens" in tables and "| minilm-cosine corag |" in tables
