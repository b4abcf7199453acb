"""Each kind left out of the training: what is kept, and which novelty is safe."""

import numpy as np
import pytest

import agent
from experiments.agents.left_out import LeftOut, chosen_novelty, shortfalls
from experiments.agents.train import PAGE_FILE, TrainAgentConfig, train
from experiments.labels.table import read_labels
from tests.experiments.worlds import training_questions, training_rows, write_labels


def kept_table(path, num_questions=24):
    """A context by bm25 costs little, holds all in d0 and d1 and half in d2; the other holds .9, and all in d2."""
    rows = []
    for row in training_rows(num_questions):
        folder = int(row["query"][1:]) % 3
        cheap = "bm25" in row["configuration"]
        held = (0.5 if cheap else 1.0) if folder == 2 else (1.0 if cheap else 0.9)
        names = {"data": f"d{folder}", "kind": f"k{folder}"}
        rows.append(
            {**row, **names, "evidence_recall": held, "answer_recall": held, "cost_tokens": 16 if cheap else 64}
        )
    return write_labels(path, rows, training_questions(num_questions))


def test_shortfalls_by_hand(tmp_path):
    labels = read_labels(str(kept_table(tmp_path / "l.parquet")))
    rows = np.flatnonzero(labels.kind == "k2")
    cheap, dear = (next(i for i, name in enumerate(labels.configurations) if of in name) for of in ("bm25", "softsim"))
    left = LeftOut(
        "k2", rows, np.full(len(rows), dear), (0.0, 1.0), np.array([[cheap] * len(rows), [dear] * len(rows)])
    )
    # The cheap one holds half of what the fallback holds.
    np.testing.assert_allclose(shortfalls(labels, [left]), [[0.5, 0.0]])


def test_the_largest_novelty_that_keeps_the_promise():
    # Of twenty texts one may lose more than promised, 2 / 21 < .1 < 3 / 21: 0, 1, 1, 2 and, by luck, 0 do.
    lost = np.zeros((20, 5))
    lost[0, 1:4], lost[1, 3] = 0.3, 0.05
    assert chosen_novelty(lost, 0.98) == 2
    assert chosen_novelty(lost, 0.9) == 4
    # Of ten texts none may, as an eleventh counts as lost.
    assert chosen_novelty(lost[:10], 0.98) == 0
    # None keeps it: the first, with which the agent hardly departs.
    assert chosen_novelty(lost + 0.5, 0.98) == 0


@pytest.mark.slow
def test_an_agent_that_forecasts_names_the_cheapest_that_keeps_what_is_promised(tmp_path):
    config = TrainAgentConfig(
        labels=str(kept_table(tmp_path / "l.parquet", 120)), out=str(tmp_path / "out"), quiet=True, logger="none",
        features="query", training=agent.TrainConfig(epochs=10), novelty=3.0,
    )  # fmt: skip
    report = train(config)
    for text in ((tmp_path / "out" / PAGE_FILE).read_text(), (report.checkpoint / "README.md").read_text()):
        assert "kind left out" in text and "k2" in text
    trained = report.agent
    assert (trained.config.novelty, trained.config.texts, trained.config.filling) == (3.0, 3, None)
    features = np.zeros((1, trained.config.feature_dim), dtype=np.float32)
    [careless], [careful] = (trained.predict(features, keep=keep) for keep in (0.0, 1.0))
    assert careless.spends <= careful.spends and careful.keeps >= careless.keeps
    assert "bm25" in careless.configuration
