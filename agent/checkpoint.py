"""Agents as checkpoints; see `common.checkpoint`. One without a network has no `model.safetensors`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent.config import AgentConfig
from agent.predict import ConfigurationAgent
from common.checkpoint import CARD_FILE, WEIGHTS_FILE, load_checkpoint, save_checkpoint
from common.errors import InputError, ModelError
from common.storage import CONFIG_FILE


def save(
    path: str | Path, agent: ConfigurationAgent, card: str, extra: Mapping[str, str | bytes] | None = None
) -> None:
    """Write the agent and its model card as a checkpoint; see `common.checkpoint.save_checkpoint`."""
    save_checkpoint(path, agent.config.to_dict(), agent.weights, card, extra)


def load(path: str | Path) -> ConfigurationAgent:
    """Return the agent of a checkpoint folder, ready to predict on the CPU without torch.

    Raises:
        ModelError: The folder or one of its files is missing, damaged, or does not fit together.
    """
    values, tensors = load_checkpoint(path)
    try:
        return ConfigurationAgent(AgentConfig.from_dict(values), tensors)
    except InputError as error:
        raise ModelError(
            f"{path}: {WEIGHTS_FILE} does not fit {CONFIG_FILE}: {error}; copy both from one training"
        ) from error


def from_hub(name: str, **settings: Any) -> ConfigurationAgent:
    """Return the agent of a repository on the Hugging Face hub, such as `name/agent`.

    `settings` go to `huggingface_hub.snapshot_download`: `revision`, `token`, `cache_dir` and others.

    Raises:
        ModelError: The repository cannot be fetched, or holds no readable checkpoint.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        folder = snapshot_download(name, allow_patterns=[CONFIG_FILE, WEIGHTS_FILE, CARD_FILE], **settings)
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{name!r} cannot be fetched from the hub ({reason}); give another name") from error
    return load(folder)


def model_card(config: AgentConfig, facts: Mapping[str, object], body: str = "") -> str:
    """Return the card as Markdown.

    `facts` help to trust and rebuild the agent: data, metrics, seed, commit. `body` is further Markdown, such as a
    comparison with baselines.
    """
    made_with = "It has no network: every question gets the same configuration, whatever the features are."
    if config.feature_dim:
        made_with = (
            f"`features`: float, {config.feature_dim} numbers, made with the embedder `{config.embedder}` and the "
            f"recipe {_code(config.features)}."
        )
    paragraphs = [
        "# CORAG configuration agent",
        "Names, for a question, the configuration of CORAG that serves it best: a selector's spelling.",
        '```python\nimport agent\n\nconfiguration = agent.load("path/to/this/folder").predict(features)\n```',
        made_with,
        f"Configurations, in label order: {_code(config.configurations)}.",
        f"Best single configuration, the fallback: `{config.best_single}`.",
    ]
    if config.ranges is not None:
        paragraphs.append(f"Search settings: {config.ranges}.")
    if facts:
        rows = [("Fact", "Value"), ("---", "---"), *facts.items()]
        paragraphs += ["## How it was made", "\n".join(f"| {name} | {value} |" for name, value in rows)]
    return "\n\n".join(filter(None, [*paragraphs, body.rstrip()])) + "\n"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
