"""Studies, their cells and tables, worked out by hand."""

import json

import pytest
import yaml

from corag.cli.main import main
from corag.cli.page import Page
from corag.errors import InputError
from corag.naming import parse
from corag.registry import READERS, SELECTORS
from experiments.data.catalogue import find_data_set
from experiments.evaluation.config import EvaluateConfig
from experiments.papers.page import read_section, section_record
from experiments.papers.plots import draw
from experiments.papers.results import MethodInCell, StudyResult
from experiments.papers.run import counted_questions
from experiments.papers.small import differences, labels_of, substitute, substitute_cell, title_of
from experiments.papers.study import (
    DATA_SETTINGS,
    METHOD,
    cells_of,
    comparisons_of,
    find_study,
    make_study,
    methods_of,
    study_files,
)
from tests.experiments.worlds import write_folder
from tests.wandb_files import offline_runs

SMALL = {
    "name": "small",
    "title": "A small study",
    "evaluate": {"data": "sets", "reader": "none", "agent": "none"},
    "grid": {"budget": [64, 96], "cost_weight": [0, 0.3]},
    "methods": {
        "CORAG": 'corag(unit=passage, search={"policy": "paper", "iterations": 2})',
        "Naive": "naive",
        "Top": "top-k",
    },
    "baseline": "Naive",
    "figures": ["evidence_recall", "cost_tokens"],
    "table": {"rows": ["cost_weight", "method"], "columns": ["budget"], "figures": ["evidence_recall"]},
    "plot": {"kind": "lines", "x": "cost_weight", "y": ["evidence_recall"], "series": "method"},
}


def markdown(result):
    return Page("T", "", [read_section(section_record(result), "", "")]).markdown()


def small(**changes):
    return make_study({**SMALL, **changes})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tabel": {}}, "table"),
        ({"baseline": "naive"}, "Naive"),
        ({"grid": {"budget": [64], "cost_weight": [0], "mood": [1]}}, "mood"),
        ({"published": {"rows": [{"budget": 64, "method": "Top", "values": [1, 2]}]}}, "published"),
        ({"published": {"along": "budget", "rows": [{"method": "Top", "values": [1, 2, 3]}]}}, "64, 96"),
    ],
)
def test_what_a_study_says_wrong_is_named(changes, named):
    with pytest.raises(InputError, match=named):
        cells_of(small(**changes))


def test_settings_go_to_the_comparison_and_into_the_methods_that_take_them():
    cells = cells_of(small())
    assert [cell.name for cell in cells] == ["64-0", "64-0.3", "96-0", "96-0.3"]
    assert cells[1].settings == {"data": "sets", "reader": "none", "agent": "none", "budget": 64}
    assert parse(cells[1].methods["CORAG"]).settings["cost_weight"] == 0.3
    assert cells[1].methods["Naive"] == "naive"
    comparisons = comparisons_of(cells)
    assert [[cell.name for cell in group] for group in comparisons] == [["64-0", "64-0.3"], ["96-0", "96-0.3"]]
    # What does not depend on lambda runs once.
    assert [len(methods_of(group)) for group in comparisons] == [4, 4]


def test_a_value_may_be_for_some_methods_and_small_is_laid_over_all_of_it():
    grid = {"budget": {64: {"budget": 64}, 96: {"budget": 96, "methods": ["CORAG"]}}, "cost_weight": [0, 0.3]}
    over = {"evaluate": {"reader": "extractive"}, "grid": {"cost_weight": [0]}, "methods": {"Top": None}, "limit": 5}
    study = small(grid=grid, small=over)
    assert [len(cell.methods) for cell in cells_of(study)] == [3, 3, 1, 1]
    reduced = study.reduced()
    assert [(cell.name, list(cell.methods)) for cell in cells_of(reduced)] == [
        ("64-0", ["CORAG", "Naive"]),
        ("96-0", ["CORAG"]),
    ]
    assert reduced.limit == 5 and reduced.evaluate["reader"] == "extractive" and reduced.evaluate["data"] == "sets"
    with pytest.raises(InputError, match="gird"):
        small(small={"gird": {}}).reduced()


def found(method, cost_weight, values, **others):
    rows = [{"query": str(number), "evidence_recall": value} for number, value in enumerate(values)]
    where = {"budget": "64", "cost_weight": cost_weight, "method": method}
    return MethodInCell(where, rows, {"cost_tokens": others.get("tokens", 10.0)})


def test_figures_leads_and_the_papers_own_by_hand():
    rows = [{"cost_weight": 0, "method": "CORAG", "values": [0.7, 0.8]}]
    published = {"source": "table 9", "along": "budget", "rows": rows}
    better = [found("CORAG", "0", [1.0] * 10), found("Naive", "0", [0.0, 0.5] * 5), found("Top", "0", [0.5, 0.0] * 5)]
    measured = StudyResult(small(published=published), methods=better)
    where = {"budget": "64", "cost_weight": "0"}
    assert measured.figure("evidence_recall", {**where, "method": "Naive"}).mean == 0.25
    assert measured.figure("cost_tokens", {**where, "method": "Naive"}).mean == 10.0
    gain = measured.gain("evidence_recall", {**where, "method": "CORAG"})
    assert gain.mean == 0.75 and 0.5 < gain.low < gain.high < 1 and gain.is_certain
    assert measured.gain("evidence_recall", {**where, "method": "Naive"}) is None
    assert not measured.gain("evidence_recall", {**where, "method": "Top"}).is_certain
    text = markdown(measured)
    assert "## small: A small study" in text
    assert "| 0 | CORAG | **1.000**† |" in text
    assert "| 0 | CORAG, in the paper | .700 |" in text
    assert "| 0 | Naive | .250 |" in text
    # What was not measured here is below.
    assert "The paper's own figures, table 9:" in text and "| 96 | 0 | CORAG | .800 |" in text


def test_questions_that_share_a_document_are_resampled_together():
    rows = [{"query": str(number), "evidence_recall": float(number < 5)} for number in range(10)]
    intervals = []
    for group in (lambda number: number, lambda number: number // 5):
        grouped = [{**row, "group": str(group(number))} for number, row in enumerate(rows)]
        where = {"budget": "64", "cost_weight": "0", METHOD: "Top"}
        figure = StudyResult(small(), methods=[MethodInCell(where, grouped, {})]).figure("evidence_recall", where)
        intervals.append((figure.low, figure.high))
    # Two groups, all right and all wrong: a sample may well have one of them alone.
    assert intervals[0] != (0, 1) and intervals[1] == (0, 1)


def test_parts_that_ship_replace_all_others():
    text = 'self-route(part="corag(preset=paper, reranker=BAAI/bge-reranker-large, agent=trained)")'
    method = substitute("selector", text)
    assert "minilm-evidence" in method and "trained" not in method and "BAAI" not in method
    assert substitute("reader", "ollama(model=llama3:8b)") == "extractive"
    assert substitute("judge", "openai(model=gpt-4o)") is None
    softer = substitute("reranker", "cross-encoder(model=BAAI/bge-reranker-base, output=logit)")
    assert softer == "minilm-softsim(sharpness=4)"
    assert substitute("embedder", "bge-m3") == "minilm"
    assert substitute("reranker", "bm25") == "bm25"


def test_a_standin_names_its_data_and_all_that_is_not_as_in_the_papers_study():
    full = find_study("corag-table2")
    study = full.reduced()
    cells = [substitute_cell(cell, 20) for cell in cells_of(study)]
    rows = {name: (there, here) for name, there, here in differences(cells_of(full), cells)}
    assert rows["budget"] == ("1024", "256") and rows["limit"] == ("100", "20")
    assert rows["max_tokens"] == ("256; 512; 1024", "64") and "agent" in rows and "CORAG upper" in rows
    assert "chunk" not in rows and "num_candidates" in rows
    labels = labels_of(study)
    [label, _] = StudyResult(study, labels).labels({"data": "WikiPassageQA", "chunk": "64"})
    assert label.endswith(" for WikiPassageQA") and label in title_of(full, study, labels)
    # What is left out is said, and what is set to the default is not.
    full = find_study("adaptive-k-aggregation")
    rows = {
        name: (there, here)
        for name, there, here in differences(
            cells_of(full), [substitute_cell(cell, 20) for cell in cells_of(full.reduced())]
        )
    }
    assert rows["Fixed 50k"] == ("top-tokens(num_tokens=50000, skip=false)", "left out")
    assert rows["budget_for"] == ("prompt", "context") and rows["judge"][1] == "none" and "tokenizer" not in rows


def test_questions_that_a_cell_keeps_are_those_with_a_value_of_a_method():
    queries = {"clean": {"keep": {"Top": {"full_evidence": 1}}}, "all": {}}
    cells = cells_of(small(grid={"budget": [64], "cost_weight": [0], "queries": queries}))
    assert len(comparisons_of(cells)) == 1
    rows = [{"query": "a", "full_evidence": 1.0}, {"query": "b", "full_evidence": 0.0}]
    record = {"queries": 2, "queries_without_gold": 0}
    assert [counted_questions(cell, {"top-k": rows}, record) for cell in cells] == [
        ({"a"}, "1 of 2 (64-0-clean)"),
        ({"a", "b"}, "2"),
    ]
    _, without_evidence = counted_questions(cells[1], {"top-k": rows}, {**record, "queries_without_gold": 1})
    assert without_evidence == "2, 1 without evidence"
    # Where none is kept there are no figures, though the comparison has a summary of all that were asked.
    where = {**cells[0].values, METHOD: "Top"}
    empty = StudyResult(small(), methods=[MethodInCell(where, [], {"cost_tokens": 9.0, "full_evidence": 1.0})])
    assert empty.figure("cost_tokens", where) is None and empty.figure("full_evidence", where) is None


def test_what_is_missing_is_said_in_one_line_before_anything_is_done(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CORAG_DATA", str(tmp_path / "none"))
    assert main(["reproduce", "corag-table4", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].startswith("error: corag-table4 needs msmarco")
    assert "corag data get msmarco" in said[0] and "--standin" in said[0]
    assert main(["reproduce", "outside-code", "--out", str(tmp_path / "out")]) == 2
    assert "outside-code needs codebase; CORAG_DATA" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_all_goes_on_after_a_failure_and_a_second_run_measures_nothing_again(tmp_path, monkeypatch, capsys):
    write_folder(tmp_path / "sets")
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name, changes in (("small", {}), ("broken", {"evaluate": {"data": "nowhere"}})):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**SMALL, "name": name, **changes}))
    files = {name: tmp_path / f"{name}.yaml" for name in ("broken", "small")}
    for module in ("run", "study"):
        monkeypatch.setattr(f"experiments.papers.{module}.study_files", lambda: files)
    assert main(["reproduce", "all", "--out", "out", "--limit", "2", "--quiet"]) == 2
    assert "1 of the studies failed: broken" in capsys.readouterr().err
    record = json.loads((tmp_path / "out" / "small" / "result.json").read_text())
    assert len(record["cells"]) == 12 and record["cells"][0]["evidence_recall"]["value"] >= 0
    page = (tmp_path / "out" / "index.md").read_text()
    assert "Not measured:" in page and "| CORAG |" in page
    measured = []
    with monkeypatch.context() as patch:
        patch.setattr("experiments.evaluation.comparison.Measuring", lambda *args, **kwargs: measured.append(args))
        assert main(["reproduce", "small", "--out", "out", "--limit", "2", "--quiet", "--logger", "wandb"]) == 0
    assert not measured
    [logged] = offline_runs(tmp_path / "out" / "small")
    assert "64-0-CORAG/evidence_recall" in logged.summary
    assert logged.config["data"] == ["sets, dev"] and logged.config["cells"]["64-0.3"]["budget"] == 64
    assert "cost_weight=0.3" in logged.config["cells"]["64-0.3"]["methods"]["CORAG"]
    assert list((tmp_path / "out" / "small").rglob("figure*.html"))
    assert main(["reproduce", "small.yaml", "--only", "64,0.3", "--limit", "2", "--out", "out", "--quiet"]) == 0
    record = json.loads((tmp_path / "out" / "small" / "result.json").read_text())
    assert {(cell["values"]["budget"], cell["values"]["cost_weight"]) for cell in record["cells"]} == {("64", "0.3")}
    assert main(["reproduce", "small.yaml", "--only", "65", "--out", "out"]) == 2
    assert "'65'" in capsys.readouterr().err


def test_a_figure_that_nobody_measured_has_no_panel():
    study = find_study("adaptive-k-aggregation")
    assert "mention" in study.plot.y and "cost_tokens" in study.plot.y
    values = {**{axis: next(iter(of_axis)) for axis, of_axis in study.grid.items()}, METHOD: next(iter(study.methods))}
    rows = [{"query": "q", "cost_tokens": 10, "context_recall": 1.0}]
    drawn = draw(StudyResult(study, methods=[MethodInCell(values, rows, {"cost_tokens": 10, "context_recall": 1.0})]))
    assert "<!-- correct mention -->" not in drawn and "<!-- tokens -->" in drawn
    of_car, values = find_study("car-answers"), {METHOD: "CAR"}
    drawn = draw(StudyResult(of_car, methods=[MethodInCell(values, rows, {})]))
    # The paper's judged figures alone would look like a result.
    assert "<!-- hallucination -->" not in drawn and "<!-- in the paper -->" in drawn
    assert draw(StudyResult(study, methods=[MethodInCell(values, [{"query": "q"}], {})])) == ""


@pytest.mark.parametrize("name", study_files())
def test_a_shipped_study_is_whole_and_names_splits_and_parts_that_there_are(name):
    study = find_study(name)
    assert study.title and study.needs and cells_of(study) and cells_of(study.reduced())
    for cell in cells_of(study) if not name.startswith(("corag-", "search-", "outside-")) else ():
        assert cell.settings["split"] in find_data_set(cell.settings["data"]).splits
        settings = {name: value for name, value in cell.settings.items() if name not in DATA_SETTINGS}
        config = EvaluateConfig(**settings, methods=tuple(cell.methods.values()))
        for text in (config.reader, *cell.methods.values()):
            for role, registry in (("reader", READERS), ("part", SELECTORS)):
                if (inner := parse(text).settings.get(role)) is not None:
                    assert registry.settings(inner)


@pytest.mark.parametrize(
    ("name", "data", "method", "mean"),
    [
        ("edc2-noise-top20", "WebQ", "RALM", 86.80), ("edc2-noise-top20", "WebQ", "EDC2-RAG", 87.30),
        ("edc2-redundancy", "TriviaQA", "RALM", 93.42),
        ("edc2-redundancy", "TriviaQA", "Raw_Compression", 93.32), ("edc2-redundancy", "TriviaQA", "EDC2-RAG", 93.72),
        ("edc2-redundancy", "WebQ", "RALM", 88.45), ("edc2-redundancy", "WebQ", "Raw_Compression", 87.84),
        ("edc2-redundancy", "WebQ", "EDC2-RAG", 88.92),
    ],
)  # fmt: skip
def test_rows_have_the_averages_that_the_paper_prints(name, data, method, mean):
    values = [
        row["values"][0] for row in find_study(name).published.rows if (row["data"], row["method"]) == (data, method)
    ]
    assert len(values) == 6
    assert 100 * sum(values) / 6 == pytest.approx(mean, abs=0.011)
