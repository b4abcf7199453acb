"""The paper's agent by name: its settings, its 10% rule, and descriptions of the rerankers."""

from dataclasses import asdict, replace

import numpy as np
import pytest

import agent
import corag
from agent import AgentError
from corag.errors import InputError
from corag.rerankers.descriptions import description_of
from experiments.agents.recipes import RECIPES, departures, values_of
from experiments.agents.sweep import SweepConfig, plan
from experiments.agents.targets import PAPER, TargetConfig, learnt_targets, make_targets
from experiments.agents.train import TrainAgentConfig, train
from tests.experiments.worlds import arrays_of, label_row, training_questions, training_rows, write_labels

QUICK = agent.TrainConfig(logger="none", epochs=2)


def config_of(labels, out, **settings):
    given = {"recipe": "paper", "train_split": "train", "val_split": "dev", "training": QUICK, "quiet": True}
    return TrainAgentConfig(labels=str(labels), out=str(out), **given | settings)


def labels_of(tmp_path, rows=None, **changes):
    return write_labels(tmp_path / "labels.parquet", rows, **changes)


def test_the_paper_by_name_has_all_its_settings():
    config = TrainAgentConfig(labels="l", out="o", recipe="paper").settled()
    assert departures(config, "paper") == {}
    assert (config.parts, config.hidden, config.map_dim, config.min_lead) == (("query",), (512, 256), 128, 0.0)
    assert config.target == PAPER and config.describe
    training = config.training
    assert (training.lr, training.batch_size, training.epochs, training.margin) == (1e-3, 32, 60, 1.0)
    assert (training.optimizer, training.keep, training.patience) == ("adam", "last", None)
    assert (training.regret_weight, training.temperature, training.standardize, training.balanced) == (
        0,
        0,
        False,
        False,
    )
    assert config.settled() is config


def test_what_is_set_beside_a_recipe_wins():
    target = TargetConfig(metric="f1", noise=0.02)
    training = agent.TrainConfig(keep="best", epochs=5)
    config = TrainAgentConfig("l", "o", recipe="paper", target=target, training=training, describe=False).settled()
    assert (config.target.metric, config.target.noise, config.target.weighting) == ("f1", 0.02, "rule")
    assert departures(config, "paper") == {
        "target.metric": "f1",
        "target.noise": 0.02,
        "describe": False,
        "training.epochs": 5,
        "training.keep": "best",
    }


def test_the_default_recipe_is_what_was_the_default():
    config = TrainAgentConfig("l", "o").settled()
    assert (config.target.metric, config.target.noise, config.target.weighting) == ("f1", 0.02, "margin")
    assert (config.describe, config.training.keep) == (False, "best")
    assert TargetConfig().settled() == config.target


def test_every_name_of_a_recipe_is_a_setting():
    for recipe in RECIPES:
        assert departures(TrainAgentConfig("l", "o", recipe=recipe).settled(), recipe) == {}
    # What one recipe leaves to the class has to be the same there.
    assert set(values_of("default", "target")) <= set(values_of("paper", "target"))


def test_a_sweep_may_vary_the_recipe(tmp_path):
    base = TrainAgentConfig(str(labels_of(tmp_path)), str(tmp_path / "out"), descriptions={"my/own.model": "Laws."},
                            describe=True)  # fmt: skip
    runs = plan(SweepConfig(base, {"recipe": ["default", "paper"]}, seeds=(0,)))
    assert [run.config.settled().target.metric for run in runs] == ["f1", "rougeL"]
    assert runs[0].config.descriptions == base.descriptions
    assert runs[0].work != runs[1].work


def test_questions_that_are_not_clear_are_left_out(tmp_path):
    table = {"clear": [0.5, 0.1, 0.2, 0.2], "close": [0.44, 0.1, 0.4, 0.1], "nothing": [0.0] * 4, "b": [0.1, 0, 0.2, 0]}
    arrays = arrays_of(tmp_path, table)
    found = learnt_targets(arrays, PAPER, ("query",))
    assert found.ids == ("folder/clear", "folder/b")
    whole = make_targets(arrays, PAPER, ("query",))
    for name in ("features", "reranker", "settings", "weight", "quality", "utility"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name)[[0, 3]])
    # Other weightings keep every question.
    assert len(learnt_targets(arrays, TargetConfig(metric="rougeL", weighting="equal"), ("query",))) == 4


def test_what_is_left_is_said(tmp_path, caplog):
    caplog.set_level("INFO")
    rows = [row | ({"rougeL": 0.5} if row["query"] == "q1" else {}) for row in training_rows()]
    report = train(config_of(labels_of(tmp_path, rows), tmp_path / "out"))
    said = "5 of 6 training questions, on which the best reranker leads the next by more than 10% of rougeL"
    assert f"learnt from {said}" in caplog.text
    card = (report.checkpoint / "README.md").read_text()
    assert said in card and "| recipe | paper with training.epochs=2 |" in card
    assert "weighting=rule, margin=0.1" in card and "the last is kept" in card
    assert report.best_epoch == 1


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_no_question_left(tmp_path, value):
    rows = [row | {"rougeL": value} for row in training_rows()]
    message = (
        "none of 6 training questions is left: on none does the best of 2 rerankers lead the next by more than 10%"
    )
    with pytest.raises(AgentError, match=message):
        train(config_of(labels_of(tmp_path, rows), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_one_reranker_only(tmp_path):
    rows = [row for row in training_rows() if row["reranker"] == "bm25"]
    with pytest.raises(AgentError, match="none of 6 training questions is left: on none does the best of 1 rerankers"):
        train(config_of(labels_of(tmp_path, rows), tmp_path / "out"))


def test_two_questions(tmp_path):
    rows = [row | {"split": "train"} for row in training_rows(2)]
    questions = [row | {"split": "train"} for row in training_questions(2)]
    labels = write_labels(tmp_path / "labels.parquet", rows, questions)
    report = train(config_of(labels, tmp_path / "out", val_split=""))
    assert len(report.agent.config.rerankers) == 2
    rows = [row for row in rows if row["query"] == "q0"]
    labels = write_labels(tmp_path / "one.parquet", rows, questions[:1])
    with pytest.raises(AgentError, match="training needs at least 2 questions, got 1"):
        train(config_of(labels, tmp_path / "out1", val_split=""))


def test_mixed_budgets_are_said(tmp_path, caplog):
    rows = [row | {"budget_tokens": 128 if row["query"] == "q3" else 64} for row in training_rows()]
    train(config_of(labels_of(tmp_path, rows), tmp_path / "out"))
    assert "the labels mix the budgets 64, 128, so what is learnt is best on their mean only" in caplog.text


def test_a_lambda_without_effect_is_said(tmp_path, caplog):
    train(config_of(labels_of(tmp_path), tmp_path / "out"))
    assert "picked by value, where lambda decides nothing" in caplog.text


def test_descriptions_are_embedded_as_the_questions_were(tmp_path):
    labels = labels_of(tmp_path)
    own = {"minilm-maxsim": "For questions about\npictures | painters."}
    report = train(config_of(labels, tmp_path / "out", descriptions=own, extra_rerankers="minilm-factoid, bm25(b=0.9)"))
    loaded = agent.load(report.checkpoint)
    assert loaded.config.described == ("bm25", "minilm-maxsim", "minilm-factoid", "bm25(b=0.9)")
    texts = [
        description_of("bm25"), "For questions about pictures | painters.", description_of("minilm-factoid"),
        description_of("bm25(b=0.9)"),
    ]  # fmt: skip
    np.testing.assert_allclose(loaded.weights["descriptions"], corag.embedder().embed(texts), atol=1e-6)
    card = (report.checkpoint / "README.md").read_text()
    assert "`minilm-maxsim`: For questions about pictures / painters.;" in card
    assert "Known by their description alone: `minilm-factoid`, `bm25(b=0.9)`." in card
    found = corag.selector("corag", agent=report.checkpoint).predict("how many of item 0?")
    assert tuple(found.probabilities) == loaded.config.all_rerankers


def test_rerankers_that_nobody_described(tmp_path, caplog):
    rows = [row | {"reranker": row["reranker"].replace("bm25", "own/one")} for row in training_rows()]
    labels = labels_of(tmp_path, rows)
    config = config_of(labels, tmp_path / "out")
    assert train(config).agent.config.described == ("minilm-maxsim",)
    assert "no description of own/one, so no question is aligned with it; give one with descriptions" in caplog.text
    described = replace(config, out=str(tmp_path / "other"), descriptions={"own/one": "For numbers."})
    assert train(described).agent.config.described == ("own/one", "minilm-maxsim")
    rows = [row | {"reranker": row["reranker"].replace("minilm-maxsim", "own/two")} for row in rows]
    config = replace(config, labels=str(labels_of(tmp_path, rows)), out=str(tmp_path / "none"))
    assert train(config).agent.config.described == ()
    with pytest.raises(InputError, match="none of the labelled rerankers own/one, own/two has a description"):
        train(replace(config, extra_rerankers="bm25"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"recipe": "carrot"}, "recipe is 'carrot'; it must be one of default, paper"),
        ({"features": "query,curve"}, "features is query,curve, but a description has no candidates"),
        ({"extra_rerankers": "bm25"}, "extra_rerankers names 'bm25', which the labels have; leave it out"),
        ({"extra_rerankers": "bm52"}, "extra_rerankers names 'bm52', which is unknown; the names are"),
        ({"extra_rerankers": "nobody/knows-it"}, "reranker 'nobody/knows-it' has no description, so no agent could"),
        ({"descriptions": {"bm26": "text"}}, r"descriptions name 'bm26', which is neither in the labels \(bm25, "),
        ({"descriptions": {"bm25": " "}}, "the description of 'bm25' is empty"),
        ({"recipe": "default", "extra_rerankers": "minilm-factoid"}, "extra_rerankers is set, but the agent learns no"),
        ({"describe": False, "descriptions": {"bm25": "text"}}, "descriptions is set, but the agent learns no"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        train(config_of(labels_of(tmp_path), tmp_path / "out", **settings))
    assert not (tmp_path / "out").exists()


def test_labels_of_two_embedders_are_refused(tmp_path):
    first = labels_of(tmp_path)
    second = write_labels(tmp_path / "second.parquet", embedder="bge-m3")
    with pytest.raises(corag.errors.DataError, match=r"by the embedder 'bge-m3', .* by 'minilm'; label both with one"):
        train(config_of(f"{first},{second}", tmp_path / "out"))


def test_a_reranker_of_a_checkpoint_that_is_missing_here(tmp_path, caplog):
    rows = training_rows() + [
        label_row(f"q{number}", "gone", 0.9, iterations=iterations, split="train" if number < 6 else "dev")
        for number in range(12) for iterations in (2, 8)
    ]  # fmt: skip
    rows = [row | ({"rougeL": 0.0} if row["reranker"] == "gone" and int(row["query"][1:]) % 3 else {}) for row in rows]
    report = train(config_of(labels_of(tmp_path, rows), tmp_path / "out"))
    assert report.agent.config.rerankers == ("bm25", "minilm-maxsim", "gone")
    selector = corag.selector("corag", agent=report.checkpoint)
    chunks = [corag.Candidate(corag.Chunk("a", "Item 0: five of them."), 0.9)]
    assert selector.select("how many of item 0?", chunks, 32).trace.reranker in ("bm25", "minilm-maxsim")
    assert asdict(report.agent.config)["described"] == ("bm25", "minilm-maxsim")
