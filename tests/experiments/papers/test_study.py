"""Studies, their cells and tables, worked out by hand."""

import json
from pathlib import Path

import pytest
import yaml

from common.configuration import parse
from corag.cli.main import main
from corag.cli.page import Page, Section
from corag.errors import InputError
from corag.registry import READERS, SELECTORS
from corag.text.data import DataFolder
from experiments.data.catalogue import find_data_set
from experiments.data.splits import questions_of
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.measure import Measuring
from experiments.papers.run import ReproduceConfig, comparison_of, counted_questions
from experiments.papers.study import (
    CONFIGS,
    DATA_SETTINGS,
    METHOD,
    Study,
    cells_of,
    find_study,
    methods_of,
    study_files,
)
from experiments.papers.table import Measured, blocks, gain
from tests.experiments.worlds import QUERIES, write_folder
from tests.wandb_files import offline_runs

SMALL = yaml.safe_load(Path(__file__).with_name("small.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def small(tmp_path):
    """A small study with some changes, read from its file."""

    def read(**changes):
        file = tmp_path / f"small{len(list(tmp_path.iterdir()))}.yaml"
        file.write_text(yaml.safe_dump({**SMALL, **changes}, sort_keys=False))
        return find_study(str(file))

    return read


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tabel": {}}, "tabel"),
        ({"baseline": "naive"}, "Naive"),
        ({"methods": ["top-k", "naive"]}, "methods is"),
        ({"standin": ["evaluate"]}, "standin is"),
        ({"evaluate": None}, "no data"),
        ({"figures": ["evidence_recal"]}, "evidence_recal"),
        ({"grid": {"budget": [64], "cost_weight": [0], "mood": [1]}}, "mood"),
        ({"published": {"rows": [{"budget": 64, "method": "Top", "f1": 1}]}}, "published"),
    ],
)
def test_what_a_study_says_wrong_is_named(changes, named, small):
    with pytest.raises(InputError, match=named):
        cells_of(small(**changes))


def test_settings_go_to_the_comparison_and_into_the_methods_that_take_them(small):
    cells = cells_of(small())
    assert [cell.name for cell in cells] == ["64-0", "64-0.3", "96-0", "96-0.3"]
    assert cells[1].settings == {"data": "sets", "reader": "none", "agent": "none", "budget": 64}
    assert parse(cells[1].methods["CORAG"]).settings["cost_weight"] == 0.3
    assert cells[1].methods["Naive"] == "naive"
    # What does not depend on lambda runs once.
    assert cells[0].settings == cells[1].settings and len(methods_of(cells[:2])) == 4


def test_a_value_may_be_for_some_methods_and_the_standin_is_laid_over_all_of_it(small):
    grid = {"budget": {64: {"budget": 64}, 96: {"budget": 96, "methods": ["CORAG"]}}, "cost_weight": [0, 0.3]}
    over = {"evaluate": {"reader": "extractive", "agent": None}, "grid": {"cost_weight": [0]}, "methods": {"Top": None}}
    study = small(grid=grid, standin=over)
    assert [len(cell.methods) for cell in cells_of(study)] == [3, 3, 1, 1]
    here = study.standing_in()
    assert [(cell.name, list(cell.methods)) for cell in cells_of(here)] == [
        ("64-0", ["CORAG", "Naive"]),
        ("96-0", ["CORAG"]),
    ]
    assert here.evaluate == {"data": "sets", "reader": "extractive"}


def found(method, values, groups=None):
    rows = [
        {"query": str(number), "evidence_recall": value, "group": str(number if groups is None else groups[number])}
        for number, value in enumerate(values)
    ]
    where = {"budget": "64", "cost_weight": "0", METHOD: method}
    return Measured(where, [row | {"cost_tokens": 10} for row in rows], setup={"data": "sets"})


def test_figures_leads_and_the_papers_own_by_hand(small):
    rows = [
        {"cost_weight": 0, "budget": 64, "method": "CORAG", "evidence_recall": 0.7},
        {"cost_weight": 0, "budget": 96, "method": "CORAG", "evidence_recall": 0.8},
    ]
    study = small(published={"source": "table 9", "rows": rows})
    measured = [found("CORAG", [1.0] * 10), found("Naive", [0.0, 0.5] * 5), found("Top", [0.5, 0.0] * 5)]
    corag, naive, top = measured
    assert (naive.figure("evidence_recall"), naive.figure("cost_tokens"), naive.figure("f1")) == (0.25, 10.0, None)
    lead = gain(study, measured, corag, "evidence_recall")
    assert lead.mean == 0.75 and 0.5 < lead.low < lead.high < 1 and lead.is_certain
    assert gain(study, measured, naive, "evidence_recall") is None
    assert not gain(study, measured, top, "evidence_recall").is_certain
    text = Page("T", "", [Section("small", blocks(study, measured))]).markdown()
    assert "| 64 | 0 | CORAG | 1.000, +0.750 (+0." in text and "| 64 | 0 | Naive | 0.250 |" in text
    # What was not measured here has the paper's figure alone.
    assert "| 64 | 0 | CORAG | 0.700 | 1.000 |" in text and "| 96 | 0 | CORAG | 0.800 | - |" in text


def test_questions_that_a_cell_keeps_are_those_with_a_value_of_a_method(small):
    queries = {"clean": {"keep": {"Top": {"full_evidence": 1}}}, "all": {}}
    cells = cells_of(small(grid={"budget": [64], "cost_weight": [0], "queries": queries}))
    assert cells[0].settings == cells[1].settings
    rows = [{"query": "a", "full_evidence": 1.0}, {"query": "b", "full_evidence": 0.0}]
    assert [counted_questions(cell, {"top-k": rows}) for cell in cells] == [{"a"}, {"a", "b"}]
    assert Measured({**cells[0].values, METHOD: "Top"}, []).figure("cost_tokens") is None


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
    assert main(["reproduce", "small.yaml", "--only", "64,0.3", "--limit", "2", "--out", "out", "--quiet"]) == 0
    asked, rows = [], Measuring.rows
    with monkeypatch.context() as patch:
        patch.setattr(Measuring, "rows", lambda one, given: asked.extend(given) or rows(one, given))
        for limit in ("3", "1"):  # a larger limit goes on, and a smaller one leaves it what it has
            assert (
                main(["reproduce", "small.yaml", "--only", "64,0.3", "--limit", limit, "--out", "out", "--quiet"]) == 0
            )
    assert len(asked) == 1
    record = json.loads((tmp_path / "out" / "small" / "result.json").read_text())
    assert record["cells"][0]["questions"] == 1 and (tmp_path / "out" / "small" / record["cells"][0]["file"]).is_file()
    assert {(cell["values"]["budget"], cell["values"]["cost_weight"]) for cell in record["cells"]} == {("64", "0.3")}
    assert main(["reproduce", "small.yaml", "--only", "65", "--out", "out"]) == 2
    assert "'65'" in capsys.readouterr().err


def test_noise_is_put_among_the_candidates_of_questions_without_splits_and_with_turns_before_them(tmp_path):
    rows = [{name: row[name] for name in row if name != "split"} | {"history": ["Who?", "Ilsa."]} for row in QUERIES]
    folder = write_folder(tmp_path / "sets", queries=rows)
    evaluate = {"data": str(folder), "noise": 0.5, "size": 4}
    study = Study("s", "s", evaluate=evaluate, methods={"Top": "top-k"}, figures=["f1"])
    config = ReproduceConfig("s", out=str(tmp_path / "out"), quiet=True)
    made = comparison_of(cells_of(study), cells_of(study), config)
    queries = DataFolder.open(made.data).queries
    assert {query.id for query in queries} <= {query.id for query in questions_of(DataFolder.open(folder), "dev")}
    assert {(query.split, query.history) for query in queries} == {("dev", ("Who?", "Ilsa."))}


@pytest.mark.parametrize("file", sorted((CONFIGS / "reading").glob("*.yaml")), ids=lambda file: file.stem)
def test_a_study_with_a_language_model_has_questions_and_methods_that_there_are(file):
    for cell in cells_of(find_study(str(file))):
        settings = {name: value for name, value in cell.settings.items() if name not in DATA_SETTINGS}
        assert EvaluateConfig(**settings, methods=tuple(cell.methods.values()))


@pytest.mark.parametrize("name", study_files())
def test_a_shipped_study_is_whole_and_names_splits_and_parts_that_there_are(name):
    study = find_study(name)
    assert study.title and study.needs and cells_of(study) and cells_of(study.standing_in())
    for cell in cells_of(study) if not name.startswith(("corag-", "search-", "outside-")) else ():
        assert cell.settings["split"] in find_data_set(cell.settings["data"]).splits
        settings = {name: value for name, value in cell.settings.items() if name not in DATA_SETTINGS}
        config = EvaluateConfig(**settings, methods=tuple(cell.methods.values()))
        for text in (config.reader, *cell.methods.values()):
            for role, registry in (("reader", READERS), ("part", SELECTORS)):
                if (inner := parse(text).settings.get(role)) is not None:
                    assert registry.parameters(inner)
