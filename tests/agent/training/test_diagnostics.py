import csv
import json

import numpy as np
import pytest

from agent import fit
from agent.configurations import ConfigurationGrid
from agent.training.loggers import Diagnostics, diagnose, principal_axes
from tests.agent.worlds import random_agent, toy_config, toy_table, toy_train_config

pytestmark = pytest.mark.slow


def some_diagnostics():
    axes = np.zeros((4, 2))
    regret = np.array([0.0, 0.2, 0.4, 0.0])
    return Diagnostics(("a", "b", "c"), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), regret, axes, axes)


def test_confusion_and_regret_by_hand():
    found = some_diagnostics().tables()
    assert found["confusion"] == [["best", "a", "b", "c"], ["a", 1, 1, 0], ["b", 1, 1, 0], ["c", 0, 0, 0]]
    assert found["regret"] == [
        ["reranker", "best", "predicted", "regret"],
        ["a", 2, 2, pytest.approx(0.1)], ["b", 2, 2, pytest.approx(0.2)], ["c", 0, 0, None],
    ]  # fmt: skip


def test_principal_axes_keep_the_distances_of_flat_data():
    flat = np.array([[0.0, 0, 0], [3, 4, 0], [0, 4, 0], [3, 0, 0]])
    points = principal_axes(flat)
    apart = np.linalg.norm(flat[:, None] - flat, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(points[:, None] - points, axis=-1), apart, atol=1e-12)
    np.testing.assert_allclose(principal_axes(flat + 7), points, atol=1e-12)
    assert principal_axes(np.ones((1, 3))).tolist() == [[0.0, 0.0]]
    assert principal_axes(np.array([[1.0], [3.0]])).tolist() == [[1.0, 0.0], [-1.0, 0.0]]


def test_regret_counts_the_settings():
    agent, table = random_agent(), toy_table(6)
    grid = ConfigurationGrid(np.array([0, 1]), np.array([[4, 1.0, 0.1]] * 2))
    predicted = [agent.config.rerankers.index(found.reranker) for found in agent.predict(table.features)]
    with_grid = toy_table(6, grid=grid, utility=np.tile([0.2, 0.9], (6, 1)))
    found = diagnose(agent, with_grid)
    assert found.predicted.tolist() == predicted
    np.testing.assert_allclose(found.regret, np.where(np.array(predicted) == 0, 0.7, 0.0), atol=1e-6)
    assert diagnose(agent, toy_table(6, quality=None)).regret is None


def test_validation_regret_is_that_of_the_diagnostics(tmp_path):
    grid = ConfigurationGrid(
        np.array([0, 0, 1, 1]), np.array([[4, 1.0, 0.1], [16, 2.0, 0.3], [4, 1.0, 0.1], [16, 2.0, 0.3]])
    )
    utility = np.random.default_rng(0).random((20, 4))
    val = toy_table(20, seed=1, prefix="val", grid=grid, utility=utility)
    report = fit(toy_table(), val, toy_config(), toy_train_config(epochs=4), tmp_path)
    found = diagnose(report.agent, val)
    assert report.history[report.best_epoch]["val_regret"] == pytest.approx(found.regret.mean(), abs=1e-6)
    # A settings head that learnt the toy world's two settings names a measured configuration, so the regret is one of
    # the table's differences.
    lost = utility.max(axis=1, keepdims=True) - utility
    assert all(np.isclose(row, value).any() for row, value in zip(lost, found.regret, strict=True))


def test_a_csv_logger_gets_the_result(tmp_path):
    fit(toy_table(), toy_table(9, prefix="val"), toy_config(), toy_train_config(epochs=2, logger="csv"), tmp_path)
    folder = tmp_path / "csv" / "version_0"
    names = ("confusion", "regret", "projection")
    tables = {name: list(csv.reader((folder / f"{name}.csv").read_text().splitlines())) for name in names}
    assert [row[0] for row in tables["confusion"]] == ["best", "first", "second"]
    assert sum(int(cell) for row in tables["confusion"][1:] for cell in row[1:]) == 9
    assert tables["regret"][0] == ["reranker", "best", "predicted", "regret"]
    assert len(tables["projection"]) == 10 and len(tables["projection"][0]) == 5


def test_wandb_gets_the_result_and_the_checkpoint_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    logged, artifacts = {}, []
    log, log_artifact = wandb.Run.log, wandb.Run.log_artifact
    monkeypatch.setattr(wandb.Run, "log", lambda run, data, **rest: (logged.update(data), log(run, data, **rest))[1])
    monkeypatch.setattr(
        wandb.Run,
        "log_artifact",
        lambda run, artifact, **rest: (artifacts.append(artifact), log_artifact(run, artifact, **rest))[1],
    )
    val = toy_table(9, prefix="val")
    fit(toy_table(), val, toy_config(), toy_train_config(epochs=2, logger="wandb"), tmp_path)
    assert {"confusion", "regret_by_reranker", "projection_before", "projection_after", "val_regret"} <= set(logged)
    assert len(logged["projection_after"].data) == 9
    (artifact,) = (artifact for artifact in artifacts if artifact.type == "model")
    assert set(artifact.manifest.entries) == {"README.md", "config.json", "model.safetensors"}
    assert list((tmp_path / "wandb").glob("offline-run-*"))


def test_a_wandb_that_fails_in_the_middle_costs_the_log_alone(tmp_path, monkeypatch, caplog):
    wandb = pytest.importorskip("wandb")

    def fail(*_, **__):
        raise RuntimeError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(wandb.Run, "log_artifact", fail)
        broken.setattr(wandb.Run, "finish", fail)
        report = fit(toy_table(), None, toy_config(), toy_train_config(epochs=1, logger="wandb"), tmp_path)
    wandb.finish()
    assert json.loads((report.checkpoint / "config.json").read_text())["embedder"] == "toy"
    assert "W&B could not take the result (the disk is full)" in caplog.text
    assert "W&B could not end" in caplog.text
