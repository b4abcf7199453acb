"""Agents on the hub, by way of local folders: nothing here reaches a network."""

import shutil

import numpy as np
import pytest
from huggingface_hub import HfApi, ModelCard
from huggingface_hub.hf_api import RepoUrl

import agent
from agent import CheckpointError, HubAgent
from tests.agent.worlds import DIM, random_agent

CARD = "# An agent for tests\n"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder in place of the hub: uploads are copied into it, snapshots are folders of it."""
    root = tmp_path / "hub"

    def create_repo(self, repo_id, **settings):
        full_name = repo_id if "/" in repo_id else f"me/{repo_id}"
        (root / full_name).mkdir(parents=True, exist_ok=True)
        return RepoUrl(f"https://huggingface.co/{full_name}")

    def upload_folder(self, *, repo_id, folder_path, **settings):
        shutil.copytree(folder_path, root / repo_id, dirs_exist_ok=True)
        return f"commit of {repo_id}"

    def snapshot_download(name, *, allow_patterns, **settings):
        assert sorted(allow_patterns) == ["README.md", "config.json", "model.safetensors"]
        return str(root / name)

    monkeypatch.setattr(HfApi, "create_repo", create_repo)
    monkeypatch.setattr(HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr("agent.export.hub.snapshot_download", snapshot_download)
    return root


def test_pushed_and_fetched(hub):
    trained, features = random_agent(), np.random.default_rng(0).normal(size=(3, DIM))
    assert HubAgent(trained, CARD).push_to_hub("agent") == "commit of me/agent"
    folder = hub / "me/agent"
    assert {file.name for file in folder.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    for loaded in (HubAgent.from_pretrained("me/agent"), HubAgent.from_pretrained(folder)):
        assert loaded.agent.predict(features) == agent.load(folder).predict(features) == trained.predict(features)
    card = ModelCard.load(folder / "README.md")
    assert (card.data.library_name, card.data.license) == ("corag", "apache-2.0")
    assert "reranking" in card.data.tags and card.text.strip() == CARD.strip()
    # The metadata are added once.
    loaded.push_to_hub("someone/again")
    assert (hub / "someone/again/README.md").read_bytes() == (folder / "README.md").read_bytes()


@pytest.mark.parametrize("name", ["someone/nothing", "no such folder!"])
def test_a_repository_that_cannot_be_fetched(name):
    # huggingface_hub is told to stay offline, and refuses names that the hub cannot have.
    with pytest.raises(CheckpointError, match=name):
        HubAgent.from_pretrained(name)
