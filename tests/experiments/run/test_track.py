import csv
import os

import pytest

from corag.cli.main import COMMANDS, main, make_parser
from experiments.run.track import VARIABLES
from tests.experiments.worlds import write_folder

EVALUATE = ["evaluate", "--split", "dev", "--methods", "naive,top-k", "--reranker", "bm25", "--budget", "64",
            "--pool", "candidates", "--reader", "none", "--quiet"]  # fmt: skip


def logged(folder):
    (file,) = folder.rglob("metrics.csv")
    with file.open() as lines:
        (row,) = csv.DictReader(lines)
    return {name: float(value) for name, value in row.items() if value}


@pytest.mark.slow
def test_evaluate_logs_each_method(tmp_path, capsys):
    data, out = write_folder(tmp_path / "data"), tmp_path / "result.json"
    command = [*(one for one in EVALUATE if one != "--quiet"), "--data", str(data), "--out", str(out), "--limit", "2"]
    assert main([*command, "--logger", "csv"]) == 0, capsys.readouterr().err
    # The last line that is printed is the verdict of the page.
    last = capsys.readouterr().out.splitlines()[-1]
    assert " the best other method " in last and "(evidence recall, 2 questions)" in last
    figures = logged(tmp_path / "result.log")
    assert 0 < figures["naive/cost_tokens"] <= 64 and "top-k/evidence_recall" in figures
    # A logger changes nothing that was measured, so nothing is measured again.
    before = out.read_bytes()
    assert main(command) == 0 and out.read_bytes() == before


@pytest.fixture
def runs(monkeypatch):
    """What W&B is told of each run when figures are logged."""
    wandb = pytest.importorskip("wandb")
    told, log = [], wandb.Run.log

    def recorded(run, data, **rest):
        told.append(((run.project, run.settings.entity, run.group, run.tags, run.notes), data))
        return log(run, data, **rest)

    monkeypatch.setattr(wandb.Run, "log", recorded)
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    return told


@pytest.mark.slow
def test_wandb_gets_project_group_and_tags_of_an_evaluation(tmp_path, capsys, runs, monkeypatch):
    data = write_folder(tmp_path / "data")
    command = [*EVALUATE, "--data", str(data), "--out", str(tmp_path / "mine.json"), "--limit", "1"]
    assert main([*command, "--logger", "wandb"]) == 0, capsys.readouterr().err
    about, figures = runs[0]
    assert (about[0], *about[2:4]) == ("corag-evaluate", "mine", ("evaluate",))
    assert figures["naive/cost_tokens"] <= 64
    monkeypatch.setenv("WANDB_PROJECT", "of the variable")
    monkeypatch.setenv("WANDB_NOTES", "kept")
    told = ["--wandb.project", "own", "--wandb.entity", "me", "--wandb.group", "g", "--wandb.tags", "a, b"]
    assert main([*command, "--logger", "wandb", *told]) == 0, capsys.readouterr().err
    assert runs[-1][0] == ("own", "me", "g", ("a", "b", "evaluate"), "kept")
    assert os.environ["WANDB_PROJECT"] == "of the variable" and "WANDB_ENTITY" not in os.environ


@pytest.mark.parametrize("command", COMMANDS)
def test_the_type_of_every_setting_is_known(command):
    """Where a type hint cannot be resolved, the parser takes anything without a word."""
    assert "Unvalidated" not in make_parser(command).format_help()
