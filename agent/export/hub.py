"""Agents on the Hugging Face hub. Needs huggingface_hub, and no torch.

A repository holds a checkpoint folder as `agent.save` writes it; its card carries the hub's metadata.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from huggingface_hub import HfApi, ModelCardData, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from agent.checkpoint import CARD_FILE, CONFIG_FILE, WEIGHTS_FILE, load, save
from agent.errors import CheckpointError
from agent.predict import ConfigurationAgent


@dataclass(frozen=True)
class HubAgent:
    """An agent with its model card (Markdown; see `agent.model_card`) on the Hugging Face hub.

    `HubAgent(agent, card).push_to_hub("name/agent")` uploads; `HubAgent.from_pretrained("name/agent").agent` predicts.
    A card without metadata for the hub gets them.
    """

    agent: ConfigurationAgent
    card: str

    def push_to_hub(self, repo_id: str, *, token: str | None = None, private: bool | None = None) -> str:
        """Upload the checkpoint folder, into a repository that is created if it is missing; return the commit's URL."""
        card = self.card
        if not card.startswith("---"):
            tags = ["retrieval-augmented-generation", "reranking"]
            metadata = ModelCardData(library_name="corag", license="apache-2.0", tags=tags)
            card = f"---\n{metadata.to_yaml()}\n---\n\n{card}"
        hub = HfApi(token=token)
        repo_id = hub.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "agent"
            save(folder, self.agent, card)
            return str(hub.upload_folder(repo_id=repo_id, folder_path=folder))

    @classmethod
    def from_pretrained(cls, name: str | Path, **settings: Any) -> Self:
        """Return the agent of a local folder, or of a repository on the hub such as `name/agent`.

        `settings` go to `huggingface_hub.snapshot_download`: `revision`, `token`, `cache_dir`, `local_files_only` and
        others. What cannot be fetched, or is no readable checkpoint, is a `CheckpointError`.
        """
        files = [CONFIG_FILE, WEIGHTS_FILE, CARD_FILE]
        try:
            known = Path(name).is_dir()
            folder = Path(name if known else snapshot_download(str(name), allow_patterns=files, **settings))
        except (OSError, HfHubHTTPError, HFValidationError) as error:
            raise CheckpointError(
                f"{str(name)!r} is no folder here and cannot be fetched from the hub ({' '.join(str(error).split())}); "
                f"give the folder that holds {CONFIG_FILE} and {WEIGHTS_FILE}, or a repository that can be reached"
            ) from error
        card = folder / CARD_FILE
        return cls(load(folder), card.read_text(encoding="utf-8") if card.is_file() else "")
