"""What the campaign reads."""

import shutil

import pytest

from corag.registry import RERANKERS
from tests.experiments.worlds import save_small_agent, write_folder, write_labels
from tests.fakes import HashReranker


@pytest.fixture(scope="module")
def world(tmp_path_factory, small_index):
    """A folder with data, index, agent and labels that are right."""
    folder = tmp_path_factory.mktemp("world")
    write_folder(folder / "data")
    save_small_agent(folder / "agent")
    write_labels(folder / "labels.parquet")
    shutil.copytree(small_index, folder / "index")
    return folder


@pytest.fixture(autouse=True)
def named_reranker(monkeypatch):
    """An agent names its rerankers, so one that costs nothing has a name."""
    monkeypatch.setitem(RERANKERS.parts, "hash", HashReranker)
