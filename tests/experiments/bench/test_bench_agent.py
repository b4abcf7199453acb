import numpy as np
import pytest

from corag.registry import RERANKERS
from experiments.bench.agent import bench_agent, plot, random_agent
from experiments.bench.harness import Timing
from experiments.bench.run import agent as part


def test_a_line_for_the_embedding_and_one_for_each_batch(monkeypatch):
    monkeypatch.setattr(part, "REPEATS", 1)
    found = bench_agent(Timing(1), batches=(1, 3))
    rows = {row["setting"]: row for row in found["rows"]}
    assert list(rows)[:3] == ["embed a question (minilm)", "predict, 1 at once", "predict, 3 at once"]
    assert all(row["us"] > 0 for row in rows.values())
    assert rows["predict, 3 at once"]["us_per_question"] == pytest.approx(rows["predict, 3 at once"]["us"] / 3)
    assert [one["questions"] for one in found["curve"]] == [1, 3]
    assert found["curve"][1]["us"] == rows["predict, 3 at once"]["us_per_question"]


def test_the_agent_is_of_the_papers_size():
    config = random_agent(384).config
    assert config.encoder_shapes == ((384, 512), (512, 256), (256, 128))
    assert random_agent(8).predict(np.zeros(8)).reranker in RERANKERS.names


def test_the_figure_is_an_svg():
    assert plot({"curve": [{"questions": 1, "us": 90.0}, {"questions": 64, "us": 9.0}]}).startswith("<svg")
