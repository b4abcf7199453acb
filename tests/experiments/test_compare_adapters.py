import json
import os
from pathlib import Path

import pytest

from corag.errors import DataError, InputError
from corag.registry import READERS
from corag.types import Answer
from experiments.adapters.evidence.config import EvidenceSource
from experiments.evaluation.compare_rerankers import CompareConfig, compare_rerankers, main
from experiments.evaluation.compare_rerankers_table import replace_table, table_of
from experiments.evaluation.evaluate import EvaluateConfig, evaluate

CONFIG = Path(__file__).parents[2] / "experiments" / "configs" / "compare-adapters.yaml"
DATA = Path(os.environ.get("CORAG_DATA", Path(__file__).parents[3] / "shared" / "data"))
MARKED = "# Page\n\n<!-- table -->\nold\n<!-- /table -->\n\nThe end.\n"


class FirstWords:
    """Answers with the first words of the context, counts questions, and may get tired of them."""

    name = "first-words"

    def __init__(self):
        self.asked, self.patience = [], 10**9

    def answer(self, query, context):
        if len(self.asked) >= self.patience:
            raise KeyboardInterrupt
        self.asked.append((query, context))
        return Answer(" ".join(context.split()[:8]))


@pytest.fixture
def reader(monkeypatch):
    reader = FirstWords()
    monkeypatch.setitem(READERS._parts, "first-words", lambda: reader)
    return reader


def config_of(data, out, **changes):
    settings = {
        "sources": (EvidenceSource(data.name, split="dev", part="all"),),
        "rerankers": ("bm25:b=0.75", "minilm-factoid"),
        "budgets": (30, 60),
        "reader": "first-words",
        "baseline": "bm25 naive",
        "challenger": "minilm-factoid corag",
        "quiet": True,
    }
    return CompareConfig(str(data.parent), str(out), **{**settings, **changes})


def test_figures_are_those_of_an_evaluation(tmp_path, small_data, reader):
    result = compare_rerankers(config_of(small_data, tmp_path))
    assert json.loads((tmp_path / "compare.json").read_text()) == json.loads(json.dumps(result))
    (source,) = result["sources"]
    # The fourth question of the split has no evidence.
    assert (source["name"], source["questions"]) == (f"{small_data.name}, dev", 3)
    assert [entry["budget_tokens"] for entry in source["budgets"]] == [30, 60]
    small, large = source["budgets"]
    assert 0 < small["ceiling"] <= large["ceiling"] == 1.0
    settings = EvaluateConfig(
        str(small_data), methods="naive:reranker=bm25", budget=60, limit=3, reader="first-words", quiet=True
    )
    (expected,) = evaluate(settings)["methods"]
    by_method = {row["method"]: row for row in large["methods"]}
    assert list(by_method) == ["bm25 naive", "bm25 corag", "minilm-factoid naive", "minilm-factoid corag"]
    for name in ("full_evidence", "evidence_precision", "cost_tokens", "f1", "em"):
        assert by_method["bm25 naive"][name] == pytest.approx(expected[name])
    lead = large["lead"]
    baseline, challenger = by_method["bm25 naive"], by_method["minilm-factoid corag"]
    assert lead["f1"] == pytest.approx(challenger["f1"] - baseline["f1"])
    assert lead["share_of_tokens"] == pytest.approx(challenger["cost_tokens"] / baseline["cost_tokens"])
    assert lead["f1_low"] <= lead["f1"] <= lead["f1_high"]
    for entry in result["diversity"]:
        means = {
            row["method"]: row["f1"]
            for row in source["budgets"][entry["budget_tokens"] == 60]["methods"]
            if row["method"].endswith(entry["selector"])
        }
        assert entry["best_mean"] == pytest.approx(max(means.values()))
    assert [entry["questions_of"] for entry in result["diversity"]] == [small_data.name, "all"] * 4
    table = table_of(result)
    assert f"| {small_data.name}, dev: 3 | bm25 | naive |" in table
    assert f"{small['ceiling']:.3f} / 1.000" in table


def test_a_stopped_comparison_goes_on_and_another_limit_with_it(tmp_path, small_data, reader):
    whole = compare_rerankers(config_of(small_data, tmp_path / "whole"))
    # Enough for the first question, not for all.
    reader.patience = len(reader.asked) + len({given for given in reader.asked if given[0] == reader.asked[0][0]}) + 1
    with pytest.raises(KeyboardInterrupt):
        compare_rerankers(config_of(small_data, tmp_path / "parts"))
    reader.patience = 10**9
    again = compare_rerankers(config_of(small_data, tmp_path / "parts"))
    for one, other in zip(whole["sources"][0]["budgets"], again["sources"][0]["budgets"], strict=True):
        assert one["lead"] == pytest.approx(other["lead"])
    num_asked = len(reader.asked)
    fewer = (EvidenceSource(small_data.name, split="dev", part="all", limit=2),)
    result = compare_rerankers(config_of(small_data, tmp_path / "parts", sources=fewer))
    assert result["sources"][0]["questions"] == 2
    assert len(reader.asked) == num_asked


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": ()}, "sources is empty"),
        ({"budgets": (0,)}, "budgets must be at least 1"),
        ({"rerankers": ("bm25", "bm25:b=0.5")}, "stands twice"),
        ({"baseline": "bm25 top-k"}, "'bm25 top-k' is no reranker and selector"),
        ({"instead": {"bm26 corag": "corag"}}, "'bm26 corag' is no reranker"),
        ({"only": ("other",)}, "other"),
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


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no data folders at {DATA} (set CORAG_DATA)")
def test_the_shipped_configuration_runs(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(MARKED)
    source = '{"data": "musique", "part": "held-out", "limit": 1}'
    quick = ["--sources", f"[{source}]", "--rerankers", "[minilm-cosine, minilm-multihop]", "--reader", "extractive"]
    where = ["--data", str(DATA), "--out", str(tmp_path), "--write", str(page), "--quiet", "true"]
    assert main(["--config", str(CONFIG), *quick, "--budgets", "[128]", *where]) == 0
    table = capsys.readouterr().out
    assert table.strip() in page.read_text()
    assert "musique, train, held out: 1" in table and "`minilm-cosine corag` searches as" in table


def test_the_command_line_says_what_is_wrong(tmp_path, capsys):
    assert main(["--config", str(CONFIG), "--out", str(tmp_path), "--data", str(tmp_path), "--quiet", "true"]) == 2
    assert "error:" in capsys.readouterr().out
