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
    """A folder that stands for the hub: uploads are copied into it, snapshots are folders of it."""
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
        if not (root / name).is_dir():
            raise FileNotFoundError(f"no repository {name}")
        return str(root / name)

    monkeypatch.setattr(HfApi, "create_repo", create_repo)
    monkeypatch.setattr(HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr("agent.export.hub.snapshot_download", snapshot_download)
    return root


def features(num_rows=3):
    return np.random.default_rng(0).normal(size=(num_rows, DIM))


def test_a_folder_saved_and_loaded_predicts_the_same(tmp_path):
    trained = random_agent()
    assert HubAgent(trained, CARD).save_pretrained(tmp_path / "saved") is None
    for loaded in (HubAgent.from_pretrained(tmp_path / "saved").agent, agent.load(tmp_path / "saved")):
        assert loaded.config == trained.config
        assert loaded.predict(features()) == trained.predict(features())
    assert sorted(file.name for file in (tmp_path / "saved").iterdir()) == [
        "README.md", "config.json", "model.safetensors",
    ]  # fmt: skip


def test_pushed_and_fetched(hub):
    trained = random_agent()
    assert HubAgent(trained, CARD).push_to_hub("someone/agent") == "commit of someone/agent"
    assert sorted(file.name for file in (hub / "someone/agent").iterdir()) == [
        "README.md", "config.json", "model.safetensors",
    ]  # fmt: skip
    fetched = HubAgent.from_pretrained("someone/agent")
    assert fetched.agent.predict(features()) == trained.predict(features())
    # Saved while pushing, under the folder's name unless another is given.
    assert fetched.save_pretrained(hub.parent / "again", push_to_hub=True) == "commit of me/again"
    assert fetched.save_pretrained(hub.parent / "again", push_to_hub=True, repo_id="b/c") == "commit of b/c"
    assert (hub / "b/c/model.safetensors").read_bytes() == (hub / "someone/agent/model.safetensors").read_bytes()


def test_the_card_carries_metadata_once(tmp_path):
    HubAgent(random_agent(), CARD).save_pretrained(tmp_path / "one")
    card = ModelCard.load(tmp_path / "one" / "README.md")
    assert (card.data.library_name, card.data.license) == ("corag", "apache-2.0")
    assert "reranking" in card.data.tags
    assert card.text.strip() == CARD.strip()
    HubAgent.from_pretrained(tmp_path / "one").save_pretrained(tmp_path / "two")
    assert (tmp_path / "two" / "README.md").read_text() == (tmp_path / "one" / "README.md").read_text()


def test_a_checkpoint_is_replaced_and_other_content_is_not(tmp_path):
    HubAgent(random_agent(seed=1), CARD).save_pretrained(tmp_path / "saved")
    HubAgent(random_agent(seed=2), CARD).save_pretrained(tmp_path / "saved")
    assert agent.load(tmp_path / "saved").predict(features()) == random_agent(seed=2).predict(features())
    (tmp_path / "saved" / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="notes"):
        HubAgent(random_agent(), CARD).save_pretrained(tmp_path / "saved")
    assert agent.load(tmp_path / "saved").predict(features()) == random_agent(seed=2).predict(features())


@pytest.mark.parametrize("name", ["someone/nothing", "no such folder!"])
def test_a_repository_that_cannot_be_fetched(name):
    # For real: huggingface_hub is told to stay offline, and refuses names that the hub cannot have.
    with pytest.raises(CheckpointError, match=name):
        HubAgent.from_pretrained(name)
