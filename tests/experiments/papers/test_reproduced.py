"""What W&B gets of a study, through `corag reproduce`."""

import json

import pytest
import yaml

pytest.importorskip("lancedb")

from corag.cli.main import main
from tests.experiments.papers.test_study import SMALL
from tests.experiments.worlds import write_folder

pytestmark = pytest.mark.slow


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
