"""Agents on the Hugging Face hub: `push_to_hub` and `from_pretrained`. Needs huggingface_hub, and no torch.

What lies on the hub is a checkpoint folder as `agent.save` writes it; its card carries the hub's metadata.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from huggingface_hub import ModelHubMixin, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from agent.checkpoint import CARD_FILE, CONFIG_FILE, WEIGHTS_FILE, load, save
from agent.errors import CheckpointError
from agent.predict import ConfigurationAgent


class HubAgent(
    ModelHubMixin,
    library_name="corag",
    license="apache-2.0",
    tags=["retrieval-augmented-generation", "reranking"],
):
    """An agent with its model card (Markdown; see `agent.model_card`) on the Hugging Face hub.

    `HubAgent(agent, card).push_to_hub("name/agent")` uploads; `HubAgent.from_pretrained("name/agent").agent` predicts.
    A card without metadata for the hub gets them.
    """

    def __init__(self, agent: ConfigurationAgent, card: str) -> None:
        self.agent = agent
        self.card = card

    # The mixin's own method deletes config.json before it writes, and with it the checkpoint if writing fails.
    def save_pretrained(
        self, save_directory: str | Path, *, repo_id: str | None = None, push_to_hub: bool = False, **settings: Any
    ) -> str | None:
        """Write the checkpoint folder (see `agent.save`).

        With `push_to_hub`, upload it as `repo_id`, by default the folder's name, and return the address of the commit;
        `settings` go to `push_to_hub`.
        """
        self._save_pretrained(Path(save_directory))
        if not push_to_hub:
            return None
        commit: str = self.push_to_hub(repo_id=repo_id or Path(save_directory).name, **settings)
        return commit

    def _save_pretrained(self, save_directory: Path) -> None:
        card = self.card
        if not card.startswith("---"):
            card = f"---\n{self._hub_mixin_info.model_card_data.to_yaml()}\n---\n\n{card}"
        save(save_directory, self.agent, card)

    # The mixin's own method reads config.json by itself, so that a damaged one would end in a JSON error.
    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **settings: Any) -> Self:
        """Return the agent of a local folder, or of a repository on the hub such as `name/agent`.

        `settings` go to `huggingface_hub.snapshot_download`: `revision`, `token`, `cache_dir`, `local_files_only` and
        others. What cannot be fetched, or is no readable checkpoint, is a `CheckpointError`.
        """
        name, files = str(pretrained_model_name_or_path), [CONFIG_FILE, WEIGHTS_FILE, CARD_FILE]
        try:
            folder = Path(name if Path(name).is_dir() else snapshot_download(name, allow_patterns=files, **settings))
        except (OSError, HfHubHTTPError, HFValidationError) as error:
            raise CheckpointError(
                f"{name!r} is no folder here and cannot be fetched from the hub ({' '.join(str(error).split())}); "
                f"give the folder that holds {CONFIG_FILE} and {WEIGHTS_FILE}, or a repository that can be reached"
            ) from error
        card = folder / CARD_FILE
        return cls(load(folder), card.read_text(encoding="utf-8") if card.is_file() else "")
