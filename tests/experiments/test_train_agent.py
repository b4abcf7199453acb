import re
from dataclasses import replace

import numpy as np
import pytest

import agent
import corag
from agent import AgentError, FixedConfiguration
from corag.errors import DataError, InputError
from experiments.train import EVERY_QUESTION, TrainAgentConfig, best_single, commit, targets, train
from tests.experiments.worlds import label_row, training_rows, write_labels

QUICK = agent.TrainConfig(logger="none", epochs=2)


class LengthEmbedder:
    """Two numbers that tell questions apart."""

    name, dimension = "length", 2

    def embed(self, texts):
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


def table_of(rows, rerankers=("a", "b"), **settings):
    return targets(rows, rerankers, LengthEmbedder(), TrainAgentConfig("labels", "out", **settings))


def config_of(labels, out, **settings):
    return TrainAgentConfig(**{"labels": str(labels), "out": str(out), "training": QUICK, "quiet": True, **settings})


ROWS = [
    # q1: three equals; two of them scored the fewest orders, of which the second chose the fewest tokens.
    label_row("q1", "a", 0.5, iterations=2),
    label_row("q1", "a", 0.5, iterations=8),
    label_row("q1", "b", 0.5, iterations=2, cost_tokens=40),
    label_row("q1", "b", 0.1, iterations=8),
    # q2: a is clearly better, by two settings out of three.
    label_row("q2", "a", 0.6, iterations=2, exploration=0.1, cost_weight=0.3),
    label_row("q2", "a", 0.6, iterations=8, exploration=0.5, cost_weight=0.0),
    label_row("q2", "a", 0.2, iterations=4, exploration=0.9, cost_weight=0.0),
    label_row("q2", "b", 0.4, iterations=2),
    # q3: 10% better and not more.
    label_row("q3", "b", 0.40),
    label_row("q3", "a", 0.44),
    # q4: nothing answers it.
    label_row("q4", "a", 0.0),
    label_row("q4", "b", 0.0, iterations=1),
]


def test_targets_by_hand():
    table = table_of(ROWS)
    assert table.ids == ("q1", "q2", "q3", "q4")
    assert table.reranker.tolist() == [1, 0, 0, 1]
    np.testing.assert_allclose(table.settings, [[2, 0.1, 0], [5, 0.3, 0.15], [2, 0.1, 0], [1, 0.1, 0]], rtol=1e-6)
    np.testing.assert_allclose(table.quality, [[0.5, 0.5], [0.6, 0.4], [0.44, 0.4], [0, 0]], rtol=1e-6)
    assert table.weight.tolist() == [0, 1, 0, 0]
    np.testing.assert_array_equal(table.features, [[len("what about q1?"), 1]] * 4)


@pytest.mark.parametrize(
    ("margin", "weights"),
    [
        (EVERY_QUESTION, [1, 1, 1, 0]),
        (0.0, [0, 1, 1, 0]),
        (0.09, [0, 1, 1, 0]),
        (0.49, [0, 1, 0, 0]),
        (0.51, [0, 0, 0, 0]),
    ],
)
def test_the_margin_decides_which_questions_count(margin, weights):
    assert table_of(ROWS, margin=margin).weight.tolist() == weights


def test_the_metric_and_the_order_of_the_rerankers_are_those_asked_for():
    rows = [label_row("q1", "a", 0.9, evidence_recall=0.2), label_row("q1", "b", 0.1, evidence_recall=0.8)]
    assert table_of(rows).reranker.tolist() == [0]
    assert table_of(rows, metric="evidence_recall").reranker.tolist() == [1]
    assert table_of(rows, rerankers=("b", "a")).reranker.tolist() == [1]
    np.testing.assert_allclose(table_of(rows, rerankers=("b", "a")).quality, [[0.1, 0.9]], rtol=1e-6)


def test_a_single_reranker_decides_nothing():
    assert table_of([label_row("q1", "a", 0.9)], rerankers=("a",)).weight.tolist() == [0]


def test_the_best_single_setting_by_hand():
    rows = [
        # Sums: a with 2 iterations 0.9, with 8 also 0.9 for more orders; b 0.8, though best on q1.
        label_row("q1", "a", 0.3, iterations=8),
        label_row("q1", "a", 0.4, iterations=2, cost_weight=0.3),
        label_row("q1", "b", 0.8),
        label_row("q2", "a", 0.6, iterations=8),
        label_row("q2", "a", 0.5, iterations=2, cost_weight=0.3),
        label_row("q2", "b", 0.0),
    ]
    assert best_single(rows, "rougeL") == FixedConfiguration("a", 2, 0.1, 0.3)
    # Both have all the evidence by all settings: the first of the cheapest.
    assert best_single(rows, "evidence_recall") == FixedConfiguration("a", 2, 0.1, 0.3)


def test_from_a_table_to_a_checkpoint_that_predicts(tmp_path):
    report = train(config_of(write_labels(tmp_path / "labels"), tmp_path / "out"))
    assert len(report.history) == 2
    loaded = agent.load(tmp_path / "out" / "checkpoint")
    assert loaded.config.rerankers == ("bm25", "minilm-maxsim")
    assert loaded.config.ranges == agent.Ranges(iterations=(2, 8), exploration=(0.1, 0.1), cost_weight=(0.0, 0.0))
    # On the training questions each reranker is right about half the time; with 8 iterations it gains most.
    assert loaded.config.fixed == FixedConfiguration("bm25", 8, 0.1, 0.0)
    assert (loaded.config.embedder, loaded.config.feature_dim) == ("minilm", 384)
    prediction = loaded.predict(corag.embedder().embed(["how many of item 0?"])[0])
    assert prediction.reranker in loaded.config.rerankers and 2 <= prediction.iterations <= 8
    card = (tmp_path / "out" / "checkpoint" / "README.md").read_text()
    assert "48 rows over 12 questions of some/folder" in card
    assert "rougeL of the answer by reader extractive at 64 tokens" in card
    assert str(tmp_path) not in card
    selector = corag.selector("corag", agent=tmp_path / "out" / "checkpoint")
    assert selector.predict("how many of item 0?") == prediction


def test_the_agent_learns_what_the_table_says(tmp_path):
    training = replace(QUICK, epochs=25, batch_size=6)
    train(config_of(write_labels(tmp_path / "labels"), tmp_path / "out", training=training))
    loaded = agent.load(tmp_path / "out" / "checkpoint")
    rows = {row["query"]: row["question"] for row in training_rows()}
    predictions = loaded.predict(corag.embedder().embed(list(rows.values())))
    assert [prediction.reranker for prediction in predictions] == ["bm25", "minilm-maxsim"] * 6


def test_the_same_table_gives_the_same_bits(tmp_path):
    labels = write_labels(tmp_path / "labels")
    weights = [
        (train(config_of(labels, tmp_path / name)).checkpoint / "model.safetensors").read_bytes() for name in "ab"
    ]
    assert weights[0] == weights[1]


def test_no_validation_split(tmp_path):
    report = train(config_of(write_labels(tmp_path / "labels"), tmp_path / "out", val_split=""))
    assert report.monitor == "train_loss"


def test_questions_without_the_metric_are_left_out(tmp_path, caplog):
    rows = [
        row | {"evidence_recall": None if row["query"] in ("q0", "q7") else row["rougeL"]} for row in training_rows()
    ]
    train(config_of(write_labels(tmp_path / "labels", rows), tmp_path / "out", metric="evidence_recall"))
    assert "8 of 48 rows have no evidence_recall and are left out" in caplog.text
    card = (tmp_path / "out" / "checkpoint" / "README.md").read_text()
    assert re.search(r"training questions\D*5 ", card) and re.search(r"validation questions\D*5 ", card)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"train_split": "all"}, DataError, "labels has no rows of split 'all'; its splits are dev, train"),
        ({"val_split": "test"}, DataError, "labels has no rows of split 'test'; its splits are dev, train"),
        ({"val_split": "train"}, AgentError, "6 questions are in both training and validation"),
        ({"metric": "bleu"}, InputError, "metric 'bleu' is no figure of .*labels; its figures are .*rougeL"),
        ({"metric": "question"}, InputError, "metric 'question' is no figure"),
        ({"margin": 9.0}, AgentError, "at least 2 different best rerankers"),
        ({"labels": "nowhere.parquet"}, DataError, "nowhere.parquet does not exist; make a label table with"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, settings, error, message):
    config = {"labels": str(write_labels(tmp_path / "labels")), **settings}
    with pytest.raises(error, match=message):
        train(config_of(config.pop("labels"), tmp_path / "out", **config))
    assert not (tmp_path / "out" / "checkpoint").exists()


def test_the_commit_is_named():
    assert re.fullmatch(r"unknown|[0-9a-f]{7,40}(-dirty)?|.+-g[0-9a-f]+(-dirty)?", commit())
