"""Workers of a Ray cluster give what one process gives, and a lost one loses nothing."""

import importlib.util
import os
from functools import partial

import pytest

from corag.errors import CoragError, InputError
from corag.models.cluster import ClusterSettings, cluster_workers
from experiments.evaluation.comparison import compare
from experiments.evaluation.config import EvaluateConfig
from experiments.labels.config import LabelConfig, LabelSource
from experiments.labels.label import label
from tests.experiments.labels.test_label import assert_same
from tests.experiments.worlds import DOCUMENTS, QUERIES, same, write_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'corag[ray]'"
    ),
    # Of Ray itself.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """One cluster for all tests: commands use a cluster that their process is connected to."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Paths are relative: workers find them wherever they start."""
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "data" / "islands")
    write_folder(tmp_path / "data" / "seas", DOCUMENTS, [row | {"candidates": None} for row in QUERIES])


def test_label():
    settings = {
        "data": "data",
        "sources": (LabelSource("islands"), LabelSource("seas", "dev", pool="corpus", num_candidates=5)),
        "configurations": "corag(reranker=bm25), corag(reranker=minilm-softsim)",
        "iterations": "1,3",
        "budget": 48,
        "quiet": True,
    }
    alone = label(LabelConfig(out="alone/labels.parquet", **settings))
    together = label(LabelConfig(out="together/labels.parquet", engine="ray", workers=2, **settings))
    assert_same(together, alone)
    assert sorted(path.name for path in together.parent.iterdir()) == sorted(
        path.name for path in alone.parent.iterdir()
    )


def timeless(result):
    return [{name: value for name, value in row.items() if "latency" not in name} for row in result["methods"]]


def test_evaluate():
    settings = {
        "data": "data/islands", "methods": "top-k,corag(agent=none)", "reranker": "minilm-softsim", "budgets": (32, 64),
        "reader": "extractive", "quiet": True,
    }  # fmt: skip
    alone = compare(EvaluateConfig(out="alone", **settings))["islands"]
    together = compare(EvaluateConfig(out="together", engine="ray", workers=2, **settings))["islands"]
    assert same([timeless(result.record) for result in together], [timeless(result.record) for result in alone])
    assert [one.record["models"] for one in together] == [one.record["models"] for one in alone]
    # What one engine began, the other goes on with.
    again = compare(EvaluateConfig(out="together", **settings))["islands"]
    assert [one.record for one in again] == [one.record for one in together]


def square(deadly, deaths):
    """Return what squares numbers; the deadly one ends its process so many times."""

    def do(number):
        with open(f"{number}.begun", "a") as begun:
            begun.write("x")
        if number == deadly and os.path.getsize(f"{number}.begun") <= deaths:
            os._exit(1)
        if number < 0:
            raise InputError("it is negative")
        return number * number

    return do


def squares(numbers, deadly=None, deaths=0):
    settings = ClusterSettings(engine="ray", workers=2)
    with cluster_workers(settings, partial(square, deadly, deaths), most=len(numbers)) as workers:
        found = list(workers.map(numbers))
    return [value for _, value in sorted(found)]


def test_a_lost_worker_is_replaced():
    assert squares(range(7), deadly=4, deaths=2) == [0, 1, 4, 9, 16, 25, 36]


def test_work_that_kills_every_worker_ends(tmp_path):
    with pytest.raises(CoragError, match="3 Ray workers were lost over the same work"):
        squares([1, 2], deadly=2, deaths=99)
    assert (tmp_path / "2.begun").read_text() == "xxx"
