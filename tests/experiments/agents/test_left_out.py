"""Each kind left out of the training: what is gained, and which lead is safe."""

from dataclasses import replace

import numpy as np
import pytest

import agent
from experiments.agents.left_out import LEADS, TOLERATED_LOSS, LeftOut, chosen_lead
from experiments.agents.targets import TargetConfig
from experiments.agents.train import PAGE_FILE, TrainAgentConfig, train
from tests.experiments.worlds import training_questions, training_rows, write_labels

TARGET = TargetConfig(metric="f1", price=0.0, weighting="rule", margin=0.0)


def write_kinds(path, num_questions=24):
    """The separable table of `training_rows`, in three kinds."""
    rows = [
        {**row, "data": f"d{int(row['query'][1:]) % 3}", "kind": f"k{int(row['query'][1:]) % 3}"}
        for row in training_rows(num_questions)
    ]
    return write_labels(path, rows, training_questions(num_questions))


def test_gains_by_hand():
    one = LeftOut("k", np.array([0, 2]), single=0, leads=(0.0, 0.5, 1.0), by_lead=np.array([[1, 1], [0, 1], [0, 0]]))
    values = np.array([[0.5, 0.7], [9.0, 9.0], [0.5, 0.1]])
    np.testing.assert_allclose(one.gains(values), [(0.2 - 0.4) / 2, -0.2, 0.0])


def test_the_lead_gains_most_and_loses_on_no_kind():
    gains = np.zeros((2, len(LEADS)))
    gains[:, 0], gains[:, 1], gains[:, 2] = (0.3, -2 * TOLERATED_LOSS), (0.1, -TOLERATED_LOSS / 2), (0.01, 0.01)
    assert chosen_lead(list(gains)) == 1
    assert chosen_lead([np.full(len(LEADS), -1.0)]) == len(LEADS) - 1


@pytest.mark.slow
def test_a_training_reports_the_kinds_left_out_and_chooses_its_lead(tmp_path):
    config = TrainAgentConfig(
        labels=str(write_kinds(tmp_path / "l.parquet")), out=str(tmp_path / "out"), target=TARGET, quiet=True,
        logger="none",
        training=agent.TrainConfig(epochs=2),
    )  # fmt: skip
    report = train(config)
    assert report.agent.config.min_lead in LEADS
    for text in ((tmp_path / "out" / PAGE_FILE).read_text(), (report.checkpoint / "README.md").read_text()):
        assert "kind left out" in text and "k2" in text
    assert train(replace(config, min_lead=0.4, out=str(tmp_path / "given"))).agent.config.min_lead == 0.4
