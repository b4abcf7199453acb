"""What W&B gets, read back from its offline files."""

import errno
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import agent
from corag.cli.main import main
from experiments.agents.sweep import SweepConfig, sweep
from experiments.agents.targets import TargetConfig
from experiments.agents.train import TrainAgentConfig, train
from tests.experiments.worlds import write_folder, write_labels
from tests.paths import ROOT
from tests.wandb_files import offline_runs

EVALUATE = ["evaluate", "--split", "dev", "--methods", "naive,top-k", "--reranker", "bm25", "--budget", "64",
            "--pool", "candidates", "--reader", "none", "--quiet"]  # fmt: skip
CORAG = {"unit": "passage", "reranker": "bm25"}


@pytest.fixture
def config(tmp_path):
    return TrainAgentConfig(
        str(write_labels(tmp_path / "labels.parquet")), str(tmp_path / "run"), features="query", hidden=(4,), map_dim=3,
        shares=(0.5, 0.5, 0.0), training=agent.TrainConfig(epochs=3), device="cpu", quiet=True,
        target=TargetConfig(metric="f1"),
    )  # fmt: skip


@pytest.mark.slow
def test_two_runs_of_a_sweep_differ_in_what_was_varied(tmp_path, config):
    out = tmp_path / "lr"
    base = replace(config, out=str(out))
    sweep(SweepConfig(base, {"training.lr": [0.01, 0.02]}, seeds=(0,), quiet=True))
    folders = sorted(path.parent for path in out.rglob("training.json"))
    runs = [offline_runs(folder)[0] for folder in folders]
    first, second = (run.config for run in runs)
    assert [config["training"]["lr"] for config in (first, second)] == [0.01, 0.02]
    differing = {name for name in first if first[name] != second[name]} - {"_wandb"}
    assert differing == {"training", "out"}
    assert (first["hidden"], first["map_dim"], first["features"]) == ([4], 3, "query")
    assert first["target"]["metric"] == "f1" and first["agent"]["embedder"] == "minilm"
    assert str(agent.Configuration("corag", CORAG)) in first["agent"]["configurations"]
    assert len(first["label_tables"][0]["sha256"]) == 64
    assert first["commit"] and first["versions"]["torch"]
    for run, folder in zip(runs, folders, strict=True):
        assert (run.run.project, run.run.run_group, run.run.job_type) == ("corag-agent", "lr", "train")
        epochs = json.loads((folder / "training.json").read_text())["history"]
        logged = [row for row in run.history if "epoch" in row]
        assert [{name: row[name] for name in epoch} for row, epoch in zip(logged, epochs, strict=True)] == epochs
        assert all(0 <= epoch["val_accuracy"] <= epoch["val_top2_accuracy"] <= 1 for epoch in epochs)
        [artifact] = [one for one in run.artifacts if one.type == "model"]
        metadata = json.loads(artifact.metadata)
        assert "How it was made" in metadata["card"]
        assert {entry.path for entry in artifact.manifest.contents} >= {"config.json", "model.safetensors"}


@pytest.mark.slow
def test_a_resumed_training_is_the_same_run_and_ends_with_its_comparison(config, monkeypatch):
    fit, config = agent.fit, replace(config, shares=(0.5, 0.25, 0.25))

    def stopped(*args, progress, **settings):
        def stop(done, _):
            if done == 2:
                raise KeyboardInterrupt

        return fit(*args, progress=stop, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(agent, "fit", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(config)
    train(config)
    train(config)  # finished: nothing is logged again
    first, second = offline_runs(config.out)
    assert first.run.run_id == second.run.run_id
    # A killed one may have lost its epochs, so the resumed one has all.
    assert [row["epoch"] for row in second.history if "epoch" in row] == [0, 1, 2]
    assert {"lightning", "wandb", "torch"} <= second.config["versions"].keys()
    [table] = [json.loads(path.read_text()) for path in Path(config.out).rglob("comparison*.table.json")]
    assert {"best single configuration", "this agent", "oracle"} <= {row[0] for row in table["data"]}
    [report] = [path for path in Path(config.out).rglob("report*.html") if "wandb" in str(path)]
    assert report.read_text() == (Path(config.out) / "report.html").read_text()
    train(replace(config, map_dim=2))
    assert offline_runs(config.out)[2].run.run_id != first.run.run_id


@pytest.mark.slow
def test_an_evaluation_logs_its_table_and_report(tmp_path, capsys, monkeypatch):
    out = tmp_path / "mine.json"
    command = [*EVALUATE, "--data", str(write_folder(tmp_path / "data")), "--out", str(out), "--limit", "2"]
    assert main([*command, "--logger", "wandb"]) == 0, capsys.readouterr().err
    [run] = offline_runs(tmp_path / "mine.log")
    assert (run.run.project, run.run.run_group, run.run.job_type) == ("corag-evaluate", "mine", "evaluate")
    result = {row["method"]: row for row in json.loads(out.read_text())["methods"]}
    assert run.summary["naive/cost_tokens"] == result["naive"]["cost_tokens"] <= 64
    [table] = [json.loads(path.read_text()) for path in (tmp_path / "mine.log").rglob("results*.table.json")]
    assert [row[0] for row in table["data"]] == ["naive", "top-k"]
    [report] = (tmp_path / "mine.log").rglob("report*.html")
    assert "<svg" in report.read_text()
    # A logger changes nothing that was measured, so nothing is measured again.
    before = out.read_bytes()
    monkeypatch.setenv("WANDB_PROJECT", "own")
    monkeypatch.setenv("WANDB_RUN_GROUP", "g")
    assert main([*command, "--logger", "wandb"]) == 0, capsys.readouterr().err
    about = offline_runs(tmp_path / "mine.log")[-1].run
    assert (about.project, about.run_group) == ("own", "g")
    assert out.read_bytes() == before


def test_a_training_goes_on_without_wandb(config, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert len(train(config).history) == 3
    assert "W&B could not start" in caplog.text


@pytest.mark.parametrize("step", ["log_artifact", "finish"])
def test_a_training_goes_on_where_wandb_finds_the_disk_full(config, monkeypatch, caplog, step):
    import wandb

    def full(*given, **settings):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(wandb.Run, step, full)
        assert len(train(config).history) == 3
    wandb.teardown()  # a run that could not be finished would be the next test's
    assert agent.load(Path(config.out) / "checkpoint").config.hidden == (4,)
    assert "W&B could not" in caplog.text and "No space left" in caplog.text


@pytest.mark.slow
def test_the_agent_of_a_wandb_sweep_can_drive_a_training(tmp_path, config, monkeypatch, capsys):
    """Its server is not asked: the flags are as its agent makes them, and the id is in the variable that it sets."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

    planned = yaml.safe_load((ROOT / "experiments" / "configs" / "wandb" / "agent.yaml").read_text())
    values = {name: {"value": of.get("values", [of.get("min")])[0]} for name, of in planned["parameters"].items()}
    flags = create_sweep_command_args({"args": values})["args"]
    assert "--training.lr=0.0001" in flags and "--hidden=[64, 32]" in flags
    monkeypatch.setenv("WANDB_RUN_ID", "chosen01")
    given = ["--labels", config.labels, "--features", "query", "--shares", "[0.5,0.5,0]", "--training.epochs", "2"]
    given += ["--target.metric", "f1"]
    assert main(["train", *given, "--out", config.out, "--quiet", *flags]) == 0, capsys.readouterr().err
    [run] = offline_runs(config.out)
    assert run.run.run_id == "chosen01" and planned["metric"]["name"] in run.summary
    assert (run.config["training"]["lr"], run.config["hidden"]) == (0.0001, [64, 32])
