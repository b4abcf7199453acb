from pathlib import Path

import pytest
import yaml

from corag.cli.main import main
from corag.errors import DataError
from corag.text.data import DataFolder, read_corpus
from corag.text.find import data_cache, find_data, folder_name
from tests.corag.text.worlds import data_names
from tests.experiments.worlds import write_folder
from tests.paths import ROOT

CONFIGS = sorted((ROOT / "experiments" / "configs").rglob("*.yaml"))


@pytest.fixture
def places(monkeypatch, tmp_path):
    """A folder of data folders, and an empty cache; the working folder is empty, too."""
    monkeypatch.setenv("CORAG_DATA", str(tmp_path / "mine"))
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_a_path_wins_over_the_own_folder_and_that_over_the_cache(places):
    cached = data_cache() / "squad"
    cached.mkdir(parents=True)
    assert find_data("squad") == cached
    own = places / "mine" / "squad"
    own.mkdir(parents=True)
    assert find_data("squad") == own
    Path("squad").mkdir()
    assert find_data("squad") == Path("squad")
    assert find_data(own) == own


def test_names_with_a_colon_or_slash_are_folder_names(places):
    assert folder_name("ir_datasets:msmarco-passage/dev/small") == "ir_datasets-msmarco-passage-dev-small"
    found = places / "mine" / "beir-scifact"
    found.mkdir(parents=True)
    assert find_data("beir:scifact") == found


def test_a_file_is_found_as_a_path(places):
    Path("notes.txt").write_text("a")
    assert find_data("notes.txt") == Path("notes.txt")


def test_an_unknown_name_lists_what_is_there(places):
    (places / "mine" / "hotpotqa").mkdir(parents=True)
    (places / "mine" / ".half-made").mkdir()
    (places / "mine" / "musique").mkdir()
    with pytest.raises(DataError) as error:
        find_data("hotpot")
    message = str(error.value)
    assert message.startswith("hotpot is not a folder; ")
    assert "such as 'hotpotqa'" in message
    assert f"{places / 'mine'}: hotpotqa, musique; {data_cache()}: none" in message
    assert "corag data get NAME" in message
    with pytest.raises(DataError, match="'' is not a folder"):
        find_data("")


def test_without_the_variable_the_cache_alone_is_searched(places, monkeypatch):
    monkeypatch.delenv("CORAG_DATA")
    with pytest.raises(DataError, match=r"\(\S+cache/data: none\).*named by CORAG_DATA"):
        find_data("hotpot")


def test_data_folders_open_by_name(places):
    write_folder(places / "mine" / "small")
    folder = DataFolder.open("small")
    assert folder.path == places / "mine" / "small"
    assert read_corpus("small") == folder.documents


@pytest.mark.slow
def test_commands_take_a_name(places, capsys):
    write_folder(places / "mine" / "small")
    flags = ["--methods", "top-k,naive(reranker=bm25)", "--reader", "none", "--budget", "40", "--quiet"]
    assert main(["evaluate", "--data", "small", "--out", "result.json", *flags]) == 0
    sets = yaml.safe_dump({"sets": [{"name": "one", "data": "small"}], "out": "several"})
    Path("sets.yaml").write_text(sets)
    assert main(["evaluate", "--config", "sets.yaml", *flags]) == 0
    assert Path("several/one-40.json").exists()


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_shipped_configurations_name_data_sets_and_no_path(file):
    content = yaml.safe_load(file.read_text())
    found = list(data_names(content))
    assert all(name == folder_name(name) and not name.startswith(".") for name in found)
    # A study may consist of others.
    assert found or "labels:" in file.read_text() or "includes" in content
