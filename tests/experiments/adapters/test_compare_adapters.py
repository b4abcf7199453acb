import json

import pytest

from corag.cli.main import main
from corag.errors import DataError, InputError
from experiments.adapters.evidence.config import EvidenceSource
from experiments.evaluation.comparison import compare, evaluate
from experiments.evaluation.config import EvaluateConfig
from experiments.run.tables import replace_table
from tests.paths import DATA, ROOT

CONFIG = ROOT / "experiments" / "configs" / "compare-adapters.yaml"
MARKED = "# Page\n\n<!-- table -->\nold\n<!-- /table -->\n\nThe end.\n"


def config_of(data, out, **changes):
    settings = {
        "sources": (EvidenceSource(data.name, split="dev", part="all"),),
        "rerankers": ("bm25(b=0.75)", "minilm-factoid"),
        "budgets": (30, 60),
        "reader": "first-words",
        "methods": "naive,corag",
        "baselines": ("bm25 naive",),
        "challengers": ("minilm-factoid corag",),
        "latency_questions": 0,
        "quiet": True,
    }
    return EvaluateConfig(str(data.parent), out=str(out), **{**settings, **changes})


@pytest.mark.slow
def test_figures_are_those_of_an_evaluation(tmp_path, small_data, reader):
    found = compare(config_of(small_data, tmp_path))
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
def test_a_stopped_comparison_goes_on_and_another_limit_with_it(tmp_path, small_data, reader):
    whole = compare(config_of(small_data, tmp_path / "whole"))
    # Enough for the first question, not for all.
    reader.patience = len(reader.asked) + len({given for given in reader.asked if given[0] == reader.asked[0][0]}) + 1
    with pytest.raises(KeyboardInterrupt):
        compare(config_of(small_data, tmp_path / "parts"))
    reader.patience = 10**9
    again = compare(config_of(small_data, tmp_path / "parts"))
    for one, other in zip(whole.leads, again.leads, strict=True):
        assert one == pytest.approx(other)
    num_asked = len(reader.asked)
    fewer = (EvidenceSource(small_data.name, split="dev", part="all", limit=2),)
    result = compare(config_of(small_data, tmp_path / "parts", sources=fewer)).results[small_data.name][0]
    assert result["queries"] == 2
    assert len(reader.asked) == num_asked


@pytest.mark.slow
def test_candidates_within_a_corpus_hold_the_evidence(tmp_path, small_data, reader):
    source = EvidenceSource(small_data.name, split="dev", part="all", within="corpus", num_candidates=4)
    [result] = compare(config_of(small_data, tmp_path, sources=(source,), budgets=(10**6,))).results.values()
    row = result[0]["methods"][0]
    assert (row["method"], row["chunks"], row["evidence_recall"]) == ("bm25 naive", 4.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budgets": (0,)}, r"budgets are \(0,\); give each once, at least 1 token"),
        ({"methods": "all"}, "methods is 'all'; to pair methods with rerankers, name each"),
        ({"rerankers": ("bm25", "bm25(b=0.5)")}, "a reranker or a method stands twice"),
        ({"baselines": ("bm25 top-k",)}, "'bm25 top-k' is not part of"),
        ({"instead": {"bm26 corag": "corag"}}, "'bm26 corag' is not part of"),
        ({"only": "other"}, "only names other, but the sets are called"),
    ],
)
def test_settings_that_contradict(tmp_path, small_data, changes, message):
    with pytest.raises(InputError, match=message):
        config_of(small_data, tmp_path, **changes)


def test_a_table_takes_its_place_and_all_else_stays(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(MARKED)
    replace_table(page, "| new |")
    assert page.read_text() == "# Page\n\n<!-- table -->\n\n| new |\n\n<!-- /table -->\n\nThe end.\n"
    replace_table(page, "| newer |")
    assert page.read_text().count("|") == 2


@pytest.mark.parametrize(
    "text", ["", "<!-- table -->", "<!-- /table --><!-- table -->", MARKED + MARKED, "<!-- /table -->"]
)
def test_a_page_without_a_place_for_the_table_stays_as_it_is(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(DataError, match="must have one line <!-- table -->"):
        replace_table(page, "| new |")
    assert page.read_text() == text


def test_a_page_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        replace_table(tmp_path / "page.md", "| new |")


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"no data folders at {DATA} (set CORAG_DATA)")
def test_the_shipped_configuration_runs(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(MARKED)
    source = '{"data": "musique", "part": "held-out", "limit": 1}'
    quick = ["--sources", f"[{source}]", "--rerankers", "[minilm-cosine, minilm-multihop]", "--reader", "extractive"]
    where = ["--data", str(DATA), "--out", str(tmp_path), "--write", str(page)]
    assert main(["evaluate", "--config", str(CONFIG), *quick, "--budgets", "[128]", *where]) == 0
    tables = capsys.readouterr().out
    assert tables.strip() in page.read_text()
    assert "musique: 1 questions at 128 tokens" in tables and "| minilm-cosine corag |" in tables
