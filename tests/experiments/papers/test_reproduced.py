"""Studies that measure CORAG itself, and what W&B gets of a study, through `corag reproduce`."""

import json
from functools import partial

import pytest
import yaml

pytest.importorskip("lancedb")

from corag.cli.main import main
from experiments.bench.breakdown import STEPS
from experiments.bench.run import PARTS
from experiments.papers.study import find_study, study_files
from tests.experiments.papers.test_study import SMALL
from tests.experiments.worlds import write_folder

pytestmark = pytest.mark.slow

TINY = {
    "corag-fig6": {"chunk_tokens": [32], "rerankers": "bm25", "methods": "top-k,naive", "reader": "extractive"},
    "rq4": {"sizes": [300], "methods": "top-k,naive"},
}
"""Settings at which the studies of a part of the benchmark take a second."""

SETTINGS = {"corag-fig6": ["32, top-k", "32, naive bm25"], "rq4": ["300 chunks, top-k", "300 chunks, naive"]}


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Return a function that writes a study at its smallest; data and results lie beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    data = write_folder(tmp_path / "sets")

    def write(name):
        study = yaml.safe_load(study_files()[name].read_text())
        tiny = {**TINY[name], "data": str(data), "questions": 1, "rounds": 1}
        study["bench"] |= tiny
        study["standin"]["bench"] |= tiny
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(study))
        return partial(main, ["reproduce", f"{name}.yaml", "--out", "out", "--quiet"])

    return write


@pytest.mark.parametrize("name", TINY)
def test_a_part_of_the_benchmark_is_a_study(small, name, tmp_path, monkeypatch, capsys):
    assert small(name)() == 0, capsys.readouterr().err
    study, folder = find_study(name), tmp_path / "out" / name
    record = json.loads((folder / "result.json").read_text())
    columns = PARTS[study.bench["part"]].COLUMNS
    assert not record["standin"] and not record["cells"]
    assert [row.keys() for row in record["lines"]] == [set(columns.values())] * 2
    assert [row[columns["setting"]] for row in record["lines"]] == SETTINGS[name]
    said = (folder / "table.md").read_text()
    assert said.startswith(f"## {name}: {study.title}") and study.published.note in said
    assert (folder / "figure.svg").read_text().startswith("<svg")
    page = (tmp_path / "out" / "index.html").read_text()
    assert f'id="{name}"' in page and "<svg" in page
    if name == "corag-fig6":
        for row in record["lines"]:
            assert sum(row[columns[f"{step}_share"]] for step in STEPS) == pytest.approx(1)
    # What was measured is kept.
    monkeypatch.setattr("experiments.bench.run.bench", lambda _: pytest.fail("measured again"))
    assert small(name)() == 0
    assert json.loads((folder / "result.json").read_text())["lines"] == record["lines"]


def test_a_standin_of_the_benchmark_has_its_own_settings_and_folder(small, tmp_path, monkeypatch):
    settings = []

    def measured(config):
        settings.append(config)
        return {"rows": [{"setting": "300 chunks, top-k", "ms": 2.0}]}

    monkeypatch.setattr("experiments.bench.run.bench", measured)
    command = small("rq4").args[0]
    assert main([*command, "--standin"]) == main(command) == 0
    assert [config.out for config in settings] == ["out/rq4-standin", "out/rq4"]
    assert {config.sizes for config in settings} == {(300,)}
    assert "(stand-in)" in (tmp_path / "out" / "rq4-standin" / "table.md").read_text().splitlines()[0]


def test_wandb_gets_a_run_for_each_cell_and_one_with_table_and_figure(tmp_path, monkeypatch, capsys):
    wandb = pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    runs, log = {}, wandb.Run.log

    def logged(run, data, **rest):
        runs.setdefault(run.name, ((run.project, run.group, run.tags), {}))[1].update(data)
        return log(run, data, **rest)

    monkeypatch.setattr(wandb.Run, "log", logged)
    write_folder(tmp_path / "sets")
    study = {
        **SMALL,
        "paper": "corag",
        "axes": {"budget": [64], "cost_weight": [0, 0.3]},
        "methods": {"CORAG": "corag(policy=paper, iterations=2, reranker=bm25)", "Naive": "naive(reranker=bm25)"},
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(study))
    command = ["reproduce", "small.yaml", "--out", "out", "--limit", "1", "--logger", "wandb", "--quiet"]
    assert main(command) == 0, capsys.readouterr().err
    folder = tmp_path / "out" / "small"
    assert set(runs) == {"64-0", "64-0.3", "summary"}
    for name, (where, _) in runs.items():
        assert where == ("corag-papers", "small", ("corag", "full"))
        assert len(list((folder / "log" / name / "wandb").glob("offline-run-*"))) == 1
    for cell in json.loads((folder / "result.json").read_text())["cells"]:
        where = cell["values"]
        _, figures = runs[f"{where['budget']}-{where['cost_weight']}"]
        assert figures[f"{where['method']}/evidence_recall"] == cell["evidence_recall"]["value"]
    summary = runs["summary"][1]
    # The last point of the curve along lambda.
    assert summary["cost_weight"] == 0.3 and 0 <= summary["CORAG/evidence_recall"] <= 1
    assert isinstance(summary["table"], wandb.Html) and "Naive" in summary["table"].html
    assert "<svg" in summary["figure"].html
