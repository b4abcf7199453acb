"""Each kind left out of the training: what is gained, and which lead is safe."""

from dataclasses import replace

import numpy as np
import pytest

import agent
from experiments.agents.left_out import LEADS, TOLERATED_LOSS, LeftOut, chosen_lead, leave_kinds_out, left_out_section
from experiments.agents.targets import TargetConfig, utility
from experiments.agents.train import PAGE_FILE, TrainAgentConfig, train
from experiments.labels.table import read_labels
from tests.experiments.worlds import training_questions, training_rows, write_labels

TARGET = TargetConfig(metric="f1", price=0.0, shrink=0.0)


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


def test_an_agent_that_never_saw_a_kind_is_measured_on_it(tmp_path):
    labels = read_labels(str(write_kinds(tmp_path / "l.parquet")))
    tests = replace(labels, measures={**labels.measures, "f1": labels.measures["f1"][:, ::-1]})
    classes = labels.classes().names
    ranges = agent.Ranges((2, 8), (0.1, 0.1), (0.0, 0.0))
    config = agent.AgentConfig(classes, agent.Fallback(classes[0], 8, 0.1, 0.0), ranges=ranges)
    seen = []

    def fit(others, tests, kind):
        seen.append((kind, set(others.kind)))
        return agent.ConfigurationAgent(config)

    kinds = leave_kinds_out(labels, labels, TARGET, fit)
    assert seen == [("k0", {"k1", "k2"}), ("k1", {"k0", "k2"}), ("k2", {"k0", "k1"})]
    # Its fallback is the best single configuration, so nothing is gained or lost.
    assert all((one.gains(utility(labels, TARGET)) == 0).all() for one in kinds)
    [table] = left_out_section(labels, TARGET, kinds).blocks
    assert [row[0] for row in table.rows] == ["k0", "k1", "k2", "**mean**"]
    # Half of the questions of each kind are best served by the other class: 0.8 in place of 0.2.
    single, best = (table.headings.index(f"utility, {name}") for name in ("single", "oracle"))
    assert [round(float(row[best]) - float(row[single]), 4) for row in table.rows] == [0.3] * 4

    # The best single configuration is that of the tests, where the columns are turned.
    kinds = leave_kinds_out(labels, tests, TARGET, fit)
    assert {one.single for one in kinds} == {int(utility(tests, TARGET).mean(axis=0).argmax())}


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
