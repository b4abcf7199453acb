"""Workers of a Ray cluster give the same table as one process."""

import importlib.util

import pytest

from experiments.labels.config import LabelConfig, LabelSource
from experiments.labels.label import label
from tests.experiments.labels.label_tables import tables
from tests.experiments.worlds import DOCUMENTS, QUERIES, write_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'corag[ray]'"
    ),
    # Of Ray itself.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def test_a_local_cluster_gives_the_table_of_one_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "data" / "islands")
    write_folder(tmp_path / "data" / "seas", DOCUMENTS, [row | {"candidates": None} for row in QUERIES])
    settings = {
        "data": "data",
        "sources": (LabelSource("islands"), LabelSource("seas", "dev", pool="corpus", num_candidates=5)),
        "rerankers": "bm25,minilm-maxsim",
        "iterations": "1,3",
        "budget": 48,
        "quiet": True,
    }
    alone = label(LabelConfig(out="alone/labels.parquet", **settings))
    # The workers find paths by themselves, wherever they start.
    together = label(LabelConfig(out="together/labels.parquet", engine="ray", workers=2, **settings))
    assert tables(together) == tables(alone)
    assert sorted(path.name for path in together.parent.iterdir()) == sorted(
        path.name for path in alone.parent.iterdir()
    )
