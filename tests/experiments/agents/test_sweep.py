"""Sweeps: what is trained, what is not trained again, how it is ranked, and the same grid for W&B."""

import json
import re
from dataclasses import replace

import pytest

import agent
from corag.cli.main import make_parser
from corag.errors import DataError, InputError
from experiments.agents.sweep import SweepConfig, plan, sweep, sweep_page, with_setting
from experiments.agents.targets import TargetConfig
from experiments.agents.train import TrainAgentConfig
from tests.experiments.worlds import training_rows, write_labels
from tests.paths import ROOT

FILES = sorted((ROOT / "experiments" / "configs" / "ablations").glob("*.yaml"))
# The other one has studies of the search.
ABLATIONS = [path for path in FILES if path.stem != "search"]
BASE = TrainAgentConfig(
    "labels.parquet", "runs/lr", own_splits=True, features="query", hidden=(4,), map_dim=3,
    logger="none", training=agent.TrainConfig(epochs=2),
    target=TargetConfig(metric="f1", price=0.1),
)  # fmt: skip


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    return write_labels(tmp_path_factory.mktemp("labels") / "labels.parquet")


def config_of(labels, out, vary, **settings):
    return SweepConfig(replace(BASE, labels=str(labels), out=str(out)), vary, **{"quiet": True, **settings})


def test_the_grid_has_every_combination_with_every_seed():
    config = SweepConfig(BASE, {"training.lr": [0.1, 0.2], "hidden": [[8, 4], []]}, seeds=(5, 7))
    runs = [run for _, of_combination in plan(config) for run in of_combination]
    assert [(run.training.lr, run.hidden, run.training.seed) for run in runs] == [
        (0.1, (8, 4), 5), (0.1, (8, 4), 7), (0.1, (), 5), (0.1, (), 7),
        (0.2, (8, 4), 5), (0.2, (8, 4), 7), (0.2, (), 5), (0.2, (), 7),
    ]  # fmt: skip
    assert len({run.out for run in runs}) == 8
    assert re.fullmatch(r"runs/lr/lr=0\.1_hidden=8x4_seed=5_[0-9a-f]{8}", runs[0].out)
    [(_, by_default)] = plan(SweepConfig(BASE, {"target.margin": [0.3]}))
    assert [(run.training.seed, run.target.margin) for run in by_default] == [(0, 0.3), (1, 0.3), (2, 0.3)]
    # All else is as it was.
    assert replace(runs[0], out=BASE.out, quiet=False, hidden=(4,)) == replace(
        BASE, training=replace(BASE.training, lr=0.1, seed=5)
    )


@pytest.mark.slow
def test_a_sweep_trains_all_and_says_which_is_best(labels, tmp_path):
    config = config_of(labels, tmp_path / "lr", {"training.lr": [1e-7, 0.03]}, seeds=(0, 1))
    summary = sweep(config)
    regrets = {}
    for path in (tmp_path / "lr").glob("*/training.json"):
        done = json.loads(path.read_text())
        regrets.setdefault("lr=0.03" in path.parent.name, []).append(min(one["val_regret"] for one in done["history"]))
    assert [row["runs"] for row in summary["rows"]] == [2, 2]
    for row in summary["rows"]:
        first, second = regrets[row["settings"]["training.lr"] == 0.03]
        found = row["figures"]["val_regret"]
        assert found["mean"] == pytest.approx((first + second) / 2)
        assert found["sd"] == pytest.approx(abs(first - second) / 2**0.5)
        assert (found["min"], found["max"]) == (min(first, second), max(first, second))
    means = [row["figures"]["val_regret"]["mean"] for row in summary["rows"]]
    assert means == sorted(means)
    assert json.loads((tmp_path / "lr" / "summary.json").read_text()) == json.loads(json.dumps(summary))

    def written():
        return {path.parent.name: path.stat().st_mtime_ns for path in (tmp_path / "lr").glob("*/training.json")}

    # A wider grid trains only what is new; another base, or other labels, train anew.
    before = written()
    assert sweep(config) == summary and written() == before
    config = replace(config, vary={"training.lr": [0.03, 0.02]}, seeds=(0,))
    sweep(config)
    assert len(written()) == 5 and before.items() <= written().items()
    sweep(replace(config, base=replace(config.base, map_dim=2)))
    assert len(before.items() - written().items()) == 1
    before, rows = written(), [row | {"f1": row["f1"] / 2} for row in training_rows()]
    other = str(write_labels(tmp_path / "other.parquet", rows))
    sweep(replace(config, base=replace(config.base, labels=other), vary={"training.lr": [0.03]}))
    assert len(before.items() - written().items()) == 1


def test_a_run_that_cannot_be_trained_is_noted_and_the_others_go_on(labels, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    config = config_of(labels, tmp_path / "s", {"map_dim": [0, 3]}, seeds=(0, 1), quiet=False)
    for _ in range(2):
        summary = sweep(config)
        good, bad = summary["rows"]
        assert (good["settings"], good["errors"], bad["settings"]) == ({"map_dim": 3}, [], {"map_dim": 0})
        assert bad["figures"] == {} and bad["errors"] == ["map_dim must be a whole number of at least 1, got 0"] * 2
        said = " ".join(capsys.readouterr().out.split())
        assert "2 of 2 runs with map_dim=0 could not be trained; the first: map_dim must be a whole number" in said
    assert "map_dim=0 | 2, 2 failed | - | - | - |" in sweep_page(summary, "lr").markdown()
    # Leads of .01 and .02 agree, and tell little: half the interval is 12.706 standard errors of .005.
    near = {**good, "by_seed": {seed: value + 0.01 * (1 + int(seed)) for seed, value in good["by_seed"].items()}}
    text = sweep_page({**summary, "rows": [good, near]}, "lr").markdown()
    assert "+0.0150 (-0.0485 to +0.0785)" in text


def test_what_no_run_could_be_trained_with_is_an_error(tmp_path):
    with pytest.raises(DataError, match="nowhere"):
        sweep(config_of(tmp_path / "nowhere.parquet", tmp_path / "s", {"map_dim": [3]}))
    for name, values in {"hidden": [64], "features.query": [1], "target": [{"price": 0}]}.items():
        with pytest.raises(InputError, match=name.partition(".")[2] or name):
            plan(SweepConfig(BASE, {name: values}))
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("path", ABLATIONS, ids=lambda path: path.stem)
def test_every_shipped_ablation_is_a_grid_that_can_be(path):
    parser = make_parser("sweep")
    values = vars(parser.instantiate(parser.parse_args(["--config", str(path)])))
    config = SweepConfig(**{name: value for name, value in values.items() if name != "config"})
    assert sum(len(runs) for _, runs in plan(config)) >= 9 and config.base.out == f"runs/sweeps/{path.stem}"
    # The defaults are among what is tried: without them there is nothing to compare with.
    default = TrainAgentConfig("labels", "out")
    for name, values in config.vary.items() if path.stem != "loss_weights" else ():
        assert default in [with_setting(default, name, value) for value in values]
