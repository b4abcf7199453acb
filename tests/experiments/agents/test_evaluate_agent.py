import json
import re
from dataclasses import replace

import numpy as np
import pytest

import agent
from agent import AgentError
from corag.cli.main import main
from corag.errors import DataError, InputError
from experiments.agents import evaluate as module
from experiments.agents.evaluate import EvaluateAgentConfig, evaluate_agent
from experiments.agents.methods import BASELINES, ablations
from experiments.agents.report import verdict
from experiments.agents.targets import TargetConfig
from tests.experiments.worlds import label_row, question_row, write_labels

pytestmark = pytest.mark.slow

QUICK = agent.TrainConfig(logger="none", epochs=30, lr=0.02, batch_size=32)


def write_world(path, num_questions=40, **changes):
    """Two folders of questions about either kind: the first number of a vector says which reranker answers them."""
    rng = np.random.default_rng(0)
    rows, questions = [], []
    for number in range(num_questions):
        good = "ab"[number % 2]
        folder = "north" if number % 4 < 2 else "south"
        for reranker in "abc":
            for iterations in (2, 8):
                value = (0.7 if reranker == good else 0.2) + 0.1 * (iterations == 8) + 0.05 * rng.random()
                rows.append(label_row(f"q{number}", reranker, value, iterations=iterations, data=folder))
        vector = [1.0 if good == "a" else -1.0, *rng.normal(scale=0.1, size=3)]
        questions.append(question_row(f"q{number}", "?", vector, data=folder, group=f"{folder}/{number}"))
    return str(write_labels(path, rows, questions, **changes))


def config_of(tmp_path, **changes):
    settings = {
        "training": QUICK,
        "hidden": (16, 8),
        "map_dim": 8,
        "seeds": 2,
        "logger": "none",
        "quiet": True,
        **changes,
    }
    labels = settings.pop("labels", None) or write_world(tmp_path / "labels.parquet")
    return EvaluateAgentConfig(labels=labels, out=str(tmp_path / "out"), **settings)


def test_in_a_world_that_can_be_learnt_the_agent_reaches_the_oracle(tmp_path):
    slow = {"boosted", "agent-paper"}
    config = config_of(tmp_path, features="query,curve", seeds=1, protocols="held-out")
    names = {*BASELINES, "agent", *ablations(config.train_config())} - slow
    assert {"agent-without-contrastive-loss", "agent-without-settings-loss", "agent-without-curve"} < names
    result = evaluate_agent(replace(config, methods=",".join(names)))
    rows = {row["method"]: row for row in result["protocols"]["held-out"]["all"]["methods"]}
    assert rows.keys() == names
    for name in ("agent", "knn", "logistic", "ridge", "oracle-reranker"):
        assert rows[name]["gap_closed"] > 0.85, name
        assert rows[name]["p_questions"] < 0.05
    for name in ("majority", "best-single", "best-of-folder"):
        assert rows[name]["gap_closed"] < 0.2, name
    assert rows["agent-without-query"]["gap_closed"] < 0.3
    assert rows["oracle"]["regret"] == 0.0
    assert result["protocols"]["held-out"]["all"]["questions"] == 12
    out = tmp_path / "out"
    assert json.loads((out / "result.json").read_text()) == json.loads(json.dumps(result))
    assert "| agent-without-curve |" in (out / "result.md").read_text()
    assert (out / "agents.svg").read_text().startswith("<svg")
    html = (out / "report.html").read_text()
    assert html.startswith("<!doctype html>") and len(html) < 3_000_000
    assert "agent is ahead of the best single configuration: it closes" in html and "12 held-out questions" in html
    assert html.index("agent is ahead") < html.index("<svg") < html.index("<details>")
    assert not (out / "training").exists()


def test_unseen_folders_and_fewer_questions(tmp_path):
    result = evaluate_agent(config_of(tmp_path, methods="knn,ridge"))
    assert list(result["protocols"]) == ["held-out", "unseen-folder", "learning-curve"]
    assert set(result["protocols"]["unseen-folder"]) == {"north", "south"}
    for part in result["protocols"]["unseen-folder"].values():
        rows = {row["method"]: row for row in part["methods"]}
        assert rows["knn"]["gap_closed"] > 0.85 and part["questions"] == 20
    assert set(result["protocols"]["learning-curve"]) == {"0.125", "0.25", "0.5"}
    html = (tmp_path / "out" / "report.html").read_text()
    assert html.count("<svg") == 3 and html.count("<summary>unseen-folder, ") == 2
    assert (tmp_path / "out" / "agents.svg").read_text().startswith("<svg")


def test_what_cannot_be_trained_without_a_folder_is_left_out_there_with_its_reason(tmp_path, caplog):
    """Only the questions of the folder south tell two rerankers apart; without it, one is best throughout."""
    rng, rows, questions = np.random.default_rng(0), [], []
    for number in range(48):
        folder, good = ("south", "ab"[number // 2 % 2]) if number % 2 else ("north", "a")
        for reranker in "ab":
            value = (0.7 if reranker == good else 0.2) + 0.05 * rng.random()
            rows.append(label_row(f"q{number}", reranker, value, data=folder))
        vector = [1.0 if good == "a" else -1.0, *rng.normal(scale=0.1, size=3)]
        questions.append(question_row(f"q{number}", "?", vector, data=folder, group=f"{folder}/{number}"))
    labels = str(write_labels(tmp_path / "labels.parquet", rows, questions))
    settings = {"labels": labels, "methods": "agent,logistic,knn", "protocols": "held-out,unseen-folder,learning-curve"}
    settings["training"] = replace(QUICK, epochs=3)
    result = evaluate_agent(config_of(tmp_path, **settings))
    parts = result["protocols"]["unseen-folder"]
    without_south = {row["method"] for row in parts["south"]["methods"]}
    assert without_south == {"best-single", "knn", "oracle"}
    assert set(parts["south"]["left_out"]) == {"agent", "logistic"}
    for reason in parts["south"]["left_out"].values():
        assert reason.startswith("2 of 2 seeds: training needs at least 2 different best rerankers")
    assert "left_out" not in parts["north"] and "left_out" not in result["protocols"]["held-out"]["all"]
    assert "unseen-folder, south: agent is left out: 2 of 2 seeds" in caplog.text
    assert "Left out: agent, 2 of 2 seeds: training needs" in (tmp_path / "out" / "result.md").read_text()
    assert "agent" in {row["method"] for row in parts["north"]["methods"]}
    assert (tmp_path / "out" / "agents.svg").read_text().startswith("<svg")


def test_a_cautious_agent_is_compared_with_one_that_is_not(tmp_path):
    methods = "agent,agent-without-min-lead"
    settings = {"methods": methods, "seeds": 1, "protocols": "held-out,unseen-folder", "min_lead": 1.0}
    result = evaluate_agent(config_of(tmp_path, **settings))
    for part in (result["protocols"]["held-out"]["all"], *result["protocols"]["unseen-folder"].values()):
        rows = {row["method"]: row for row in part["methods"]}
        assert rows["agent"]["utility"] == rows["best-single"]["utility"]
        assert rows["agent-without-min-lead"]["gap_closed"] > 0.5


def test_what_was_compared_is_not_compared_again(tmp_path, monkeypatch):
    few = {"methods": "knn,agent", "protocols": "held-out", "training": replace(QUICK, epochs=3)}
    first = evaluate_agent(config_of(tmp_path, seeds=1, **few))
    ran = []
    run_method = module.run_method
    monkeypatch.setattr(
        module, "run_method", lambda name, fold: ran.append((name, fold.seed)) or run_method(name, fold)
    )
    assert evaluate_agent(config_of(tmp_path, seeds=1, **few)) == first
    assert ran == []
    evaluate_agent(config_of(tmp_path, seeds=2, **few))
    assert {seed for _, seed in ran} == {1}
    assert {name for name, _ in ran} == {"knn", "agent", "best-single", "oracle"}
    with pytest.raises(DataError, match=r"journal.jsonl belongs to a run with other settings"):
        evaluate_agent(config_of(tmp_path, seeds=1, split_seed=1, **few))


def test_no_test_question_is_learnt_from(tmp_path, monkeypatch):
    folds = []
    run_method = module.run_method
    monkeypatch.setattr(module, "run_method", lambda name, fold: folds.append(fold) or run_method(name, fold))
    evaluate_agent(config_of(tmp_path, methods="majority", seeds=3))
    tested = {fold.test.ids for fold in folds if len(fold.test) == 12}
    assert len(tested) == 1
    (held_out,) = tested
    for fold in folds:
        parts = [set(fold.train.ids), set(fold.val.ids), set(fold.test.ids)]
        assert all(part for part in parts)
        assert sum(map(len, parts)) == len(set.union(*parts))
        assert not (parts[0] | parts[1]) & set(held_out)


def test_the_slower_methods(tmp_path):
    labels, training = write_world(tmp_path / "labels.parquet", num_questions=160), replace(QUICK, patience=3)
    settings = {"methods": "boosted,agent-paper", "seeds": 1, "protocols": "held-out", "training": training}
    result = evaluate_agent(config_of(tmp_path, labels=labels, **settings))
    rows = {row["method"]: row for row in result["protocols"]["held-out"]["all"]["methods"]}
    assert rows["boosted"]["utility"] > rows["best-single"]["utility"]
    assert rows["agent-paper"]["utility"] > 0 and rows["agent-paper"]["fit_s"] > 0


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"methods": "agent,oracel"}, InputError, "unknown method 'oracel'; the methods are random, .*agent-paper"),
        ({"protocols": "held-in"}, InputError, "protocols is 'held-in'; give some of held-out, unseen-folder"),
        ({"seeds": 0}, InputError, "seeds must be at least 1"),
        ({"shares": (0.5, 0.0, 0.5)}, InputError, "each need some questions"),
        ({"target": TargetConfig(metric="bleu")}, InputError, "metric 'bleu' is no figure"),
        ({"target": TargetConfig(noise=1.0)}, AgentError, "at least 2 different best rerankers"),
    ],
)
def test_comparisons_that_cannot_be(tmp_path, changes, error, message):
    with pytest.raises(error, match=message):
        evaluate_agent(config_of(tmp_path, **changes))


def test_two_questions_cannot_be_divided(tmp_path):
    labels = write_world(tmp_path / "two.parquet", num_questions=2)
    with pytest.raises(DataError, match="2 questions in 2 groups leave none for validation"):
        evaluate_agent(config_of(tmp_path, labels=labels))


def test_the_command_line_and_wandb(tmp_path, capsys, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    labels, out = write_world(tmp_path / "labels.parquet"), tmp_path / "out"
    flags = ["--methods", "knn", "--protocols", "held-out", "--seeds", "1", "--target.token-weight", "0.1"]
    assert main(["train", "evaluate", "--labels", labels, "--out", str(out), *flags]) == 0
    shown = capsys.readouterr().out
    assert re.search(
        r"(knn .* oracle|oracle .* knn) .* best-single .*knn is ahead of the best single", shown, re.DOTALL
    )
    assert json.loads((out / "result.json").read_text())["config"]["target"]["token_weight"] == 0.1
    assert list((out / "wandb").glob("offline-run-*"))


def methods_of(**leads):
    """Rows of methods with these shares of the gap and p-values."""
    rows = {"best-single": (0.0, 1.0), "oracle": (1.0, 0.001), **leads}
    return {
        "questions": 9,
        "methods": [
            {"method": name, "utility": 0.5 + lead, "gap_closed": lead, "gap_closed_low": lead - 0.1,
             "gap_closed_high": lead + 0.1, "p_questions": p}
            for name, (lead, p) in rows.items()
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("protocols", "expected"),
    [
        ({"held-out": {"all": methods_of(agent=(0.2, 0.01), knn=(0.3, 0.2))}},
         "agent is ahead of the best single configuration: it closes +20% of the gap to the oracle (+10% to +30%, "
         "p 0.010, 9 held-out questions, 1 seed); the best of the others, knn, +30%."),
        ({"held-out": {"all": methods_of(agent=(-0.2, 0.04))}}, "agent falls behind the best single configuration"),
        ({"held-out": {"all": methods_of(knn=(0.2, 0.06))}}, "knn is not told apart from the best single"),
        ({"held-out": {"all": methods_of()}}, ""),
        # Two folders, so that p = .04 of one is chance.
        ({"unseen-folder": {"a": methods_of(agent=(0.2, 0.04)), "b": methods_of(agent=(-0.2, 0.01))}},
         "On 2 unseen data folders, agent is ahead of the best single configuration beyond chance on 0, behind it on "),
        ({"learning-curve": {"0.5": methods_of(agent=(0.2, 0.04))}}, ""),
    ],
)  # fmt: skip
def test_the_verdict_says_what_is_beyond_chance(protocols, expected):
    said = verdict({"protocols": protocols, "seeds": 1})
    assert said.startswith(expected) and (bool(said) == bool(expected))


def test_unseen_folders_need_two(tmp_path):
    labels = write_labels(tmp_path / "one.parquet")
    with pytest.raises(InputError, match="'unseen-folder', which needs labels of two data folders"):
        evaluate_agent(config_of(tmp_path, labels=str(labels), protocols="unseen-folder"))
