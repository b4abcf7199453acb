"""From a label table to a checkpoint: recipes, divisions, and the comparison with baselines."""

import re
from dataclasses import replace

import numpy as np
import pytest

import agent
import corag
from common.errors import InputError
from corag.errors import DataError
from corag.selectors.corag.features import curve_statistics
from experiments.agents.compare import AGENT, BASE, CEILING, comparison, gain_over_single
from experiments.agents.targets import TargetConfig, training_targets
from experiments.agents.train import TEST, TRAIN, VAL, TrainAgentConfig, divided, train
from experiments.labels.table import read_labels
from tests.experiments.agents.test_targets import PAPER
from tests.experiments.worlds import label_row, question_row, training_questions, training_rows, write_labels
from tests.fakes import offer

QUICK = agent.TrainConfig(epochs=2)
BM25, SOFTSIM = "corag(unit=passage, reranker=bm25)", "corag(unit=passage, reranker=minilm-softsim)"


def config_of(labels, out, **settings):
    given = {"own_splits": True, "features": "query"}
    given["target"] = TargetConfig(metric="f1", price=0.1)
    given |= {"training": QUICK, "logger": "none", "quiet": True}
    return TrainAgentConfig(str(labels), str(out), **{**given, **settings})


@pytest.fixture
def table(tmp_path):
    return write_labels(tmp_path / "labels.parquet")


def test_from_a_table_to_a_checkpoint_that_predicts(tmp_path, table):
    report = train(config_of(table, tmp_path / "out"))
    loaded = agent.load(tmp_path / "out" / "checkpoint")
    assert loaded.config.configurations == (BM25, SOFTSIM)
    assert loaded.config.ranges == agent.Ranges(iterations=(2, 8), exploration=(0.1, 0.1), cost_weight=(0.0, 0.0))
    # On the training questions each reranker is right about half the time; with 8 iterations it gains most.
    assert (loaded.config.fallback, loaded.config.fallback_settings) == (BM25, (8, 0.1, 0.0))
    assert (loaded.config.embedder, loaded.config.feature_dim) == ("minilm", 384)
    prediction = loaded.predict(corag.embedder().embed(["how many of item 0?"])[0])
    card = (report.checkpoint / "README.md").read_text()
    assert "4 configurations on 12 questions: folder 12" in card and str(tmp_path) not in card
    selector = corag.selector("corag", agent=report.checkpoint)
    # It encodes the question in the precision of its rerankers.
    found = selector.predict("how many of item 0?", [], 48)
    assert found.configuration == prediction.configuration
    assert found.probabilities == pytest.approx(prediction.probabilities, abs=1e-3)
    # The same table gives the same bits.
    again = train(config_of(table, tmp_path / "again")).checkpoint / "model.safetensors"
    assert again.read_bytes() == (report.checkpoint / "model.safetensors").read_bytes()


def test_the_questions_are_divided_by_group(tmp_path):
    questions = [{**row, "group": f"folder/{number // 2}"} for number, row in enumerate(training_questions())]
    labels = write_labels(tmp_path / "labels.parquet", questions=questions)
    config = config_of(labels, tmp_path / "out", own_splits=False, shares=(0.5, 0.25, 0.25))
    report = train(config)
    assert report.monitor == "val_regret"
    card = (report.checkpoint / "README.md").read_text()
    assert re.search(r"training questions\D*6 ", card) and "by document" in card
    # What is left is for the comparison, in the card and on a page.
    assert "oracle" in card and "oracle" in (tmp_path / "out" / "report.html").read_text()
    parts, known = divided(read_labels(str(labels)), config), read_labels(str(labels))
    groups = [set(known.group[parts == part]) for part in (TRAIN, VAL, TEST)]
    assert not groups[0] & groups[1] and not groups[0] & groups[2] and not groups[1] & groups[2]
    with pytest.raises(DataError, match="validation"):
        train(replace(config, shares=(0.5, 0.01, 0.49)))


def test_a_comparison_worked_by_hand(tmp_path):
    # Items are counted by a, pictures described by b: what is asked decides.
    vectors = [[1.0, 0.05 * number] if number % 2 else [0.05 * number, 1.0] for number in range(12)]
    rows = [
        label_row(f"q{number}", name, float((name == "a") == bool(number % 2)), cost_tokens=10 + (name == "b"))
        for number in range(12)
        for name in "ab"
    ]
    questions = [question_row(f"q{number}", "?", vector) for number, vector in enumerate(vectors)]
    labels = read_labels(str(write_labels(tmp_path / "l.parquet", rows, questions)))
    parts = labels.of(range(6)), labels.of(range(6, 8)), labels.of(range(8, 12))
    target = TargetConfig(metric="f1", price=0.0)
    config = agent.AgentConfig(labels.configurations, labels.configurations[0], 2, "toy", hidden=(), map_dim=2)
    weights = {name: np.zeros(shape, np.float32) for name, shape in config.tensor_shapes.items()}
    weights["encoder.0.weight"] = weights["choice.weight"] = np.eye(2, dtype=np.float32)
    trained = agent.ConfigurationAgent(config, weights)
    page = comparison(trained, *parts, target)
    [table] = page.sections[0].blocks
    lines = {row[0].strip("*"): row[1:] for row in table.rows}
    assert [lines[name][0] for name in (BASE, AGENT, CEILING)] == ["0.5000", "1.0000", "1.0000"]
    assert [lines[name][0] for name in ("majority class", "logistic regression")] == ["0.5000", "1.0000"]
    assert lines["k-nearest neighbours"][0] in ("0.5000", "1.0000")
    assert lines[CEILING][1] == lines[AGENT][1] and lines[AGENT][1].startswith("+0.500 (") and lines[AGENT][3] == "10.5"
    assert "+0.500" in page.lead and gain_over_single(trained, parts[2], target).mean == 0.5


@pytest.mark.parametrize(
    ("turned", "given", "lead"), [((), None, 0.0), (("dev",), None, 1.0), (("test",), None, 0.0), (("dev",), 0.0, 0.0)]
)
def test_an_agent_that_does_not_gain_on_validation_names_the_best_single_configuration(tmp_path, turned, given, lead):
    # Items are counted by a, pictures described by b; on splits that are turned it is the other way around.
    vectors = [[1.0, 0.0] if number % 2 else [0.0, 1.0] for number in range(36)]
    splits = [("train", "dev", "test")[number // 12] for number in range(36)]
    rows = [
        label_row(f"q{number}", name, float((name == "a") == bool((number + (splits[number] in turned)) % 2)))
        for number in range(36)
        for name in "ab"
    ]
    rows = [{**row, "split": splits[int(row["query"][1:])]} for row in rows]
    questions = [question_row(f"q{number}", "?", vector) for number, vector in enumerate(vectors)]
    labels = write_labels(tmp_path / "l.parquet", rows, questions)
    training = agent.TrainConfig(epochs=40, lr=0.05, batch_size=12, keep="last")
    config = config_of(labels, tmp_path / "out", training=training, hidden=(), map_dim=8, min_lead=given)
    trained = train(config).agent
    assert trained.config.min_lead == lead
    predicted = trained.predict(np.array(vectors, dtype=np.float32))
    departs = {prediction.configuration == trained.config.fallback for prediction in predicted}
    assert departs == ({True} if lead else {True, False})
    page = (tmp_path / "out" / "report.html").read_text()
    assert "falls behind" in page if "test" in turned else "is ahead of" in page
    # Started again, it is compared as it was trained.
    assert train(config).agent.config.min_lead == lead
    assert (tmp_path / "out" / "report.html").read_text() == page


def test_candidates_are_features_in_training_and_in_use(tmp_path, table):
    features = "candidates,query,curve"
    report = train(config_of(table, tmp_path / "out", features=features))
    selector = corag.selector("corag", agent=report.checkpoint)
    texts, cosines = ["a red boat", "the moon", "nine eggs"], [0.7, 0.4, 0.1]
    candidates = offer(*texts, similarities=cosines)
    question, embedder = "how many eggs are there?", corag.embedder()
    vectors = embedder.embed([question, *texts])
    parts = {"query": vectors[0], "candidates": vectors[1:].mean(axis=0), "curve": curve_statistics(cosines)}
    expected = report.agent.predict(np.concatenate([parts[name] for name in features.split(",")]))
    assert selector.predict(question, candidates, 48).probabilities == pytest.approx(expected.probabilities, abs=1e-5)


def test_what_cannot_be_learnt_from_is_said(tmp_path, table, caplog):
    one_class = [row for row in training_rows() if int(row["query"][1:]) % 2]
    with pytest.raises(InputError):
        train(config_of(write_labels(tmp_path / "one.parquet", one_class), tmp_path / "out"))
    with pytest.raises(InputError, match="of kind folder"):
        train(config_of(table, tmp_path / "out", leave_kinds_out=True))
    renamed = write_labels(tmp_path / "renamed.parquet", [{**row, "split": "x"} for row in training_rows()])
    with pytest.raises(DataError, match="own_splits"):
        train(config_of(renamed, tmp_path / "out"))
    assert train(config_of(table, tmp_path / "out", own_splits=False, shares=(1.0, 0.0, 0.0))).monitor == "train_loss"
    lacking = [{**row, "rougeL": None if row["query"] == "q0" else row["rougeL"]} for row in training_rows()]
    target = TargetConfig(metric="rougeL")
    train(config_of(write_labels(tmp_path / "lacking.parquet", lacking), tmp_path / "lacking", target=target))
    assert "1 of 12 questions have no rougeL" in caplog.text


def test_questions_that_are_not_clear_are_left_out(tmp_path, caplog):
    rows = [row if row["query"] != "q0" else {**row, "rougeL": 0.5} for row in training_rows()]
    labels = read_labels(str(write_labels(tmp_path / "l.parquet", rows)))
    assert "folder/q0" not in training_targets(labels, PAPER, ("query",)).ids
    with pytest.raises(InputError, match="margin"):
        training_targets(labels, replace(PAPER, margin=9.0), ("query",))
    # So few that it is a warning.
    train(config_of(tmp_path / "l.parquet", tmp_path / "out", target=PAPER))
    [warning] = [record for record in caplog.records if "target.margin" in record.getMessage()]
    assert warning.levelname == "WARNING" and "5 of 6 training questions" in warning.getMessage()
