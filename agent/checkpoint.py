"""A checkpoint is a folder: `config.json`, `model.safetensors`, and the card `README.md`. No pickle is ever read.

`config.json` has the SHA-256 of every file and of its own settings, which are checked when a checkpoint is loaded.

An agent without a network, which names one configuration for every question, has no `model.safetensors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from agent.config import AgentConfig
from agent.predict import ConfigurationAgent
from common.errors import InputError, ModelError
from common.storage import CONFIG_FILE, read_sealed, replace_folder, sealed

WEIGHTS_FILE, CARD_FILE = "model.safetensors", "README.md"


def save(
    path: str | Path, agent: ConfigurationAgent, card: str, extra: Mapping[str, str | bytes] | None = None
) -> None:
    """Write the agent and its model card (Markdown) as a checkpoint folder; see `common.storage.replace_folder`.

    `extra` are further files by name, such as a page. A `path` that is something other than a checkpoint, which would
    be lost, is a `ModelError`.
    """
    files: dict[str, str | bytes] = {CARD_FILE: card, **(extra or {})}
    if agent.has_network:
        # safetensors writes the memory of an array as it lies, whatever its strides.
        files[WEIGHTS_FILE] = save_tensors({name: np.ascontiguousarray(of) for name, of in agent.weights.items()})
    files[CONFIG_FILE] = sealed(agent.config.to_dict(), files)
    try:
        replace_folder(path, files, "a checkpoint", optional=(WEIGHTS_FILE,))
    except FileExistsError as error:
        raise ModelError(str(error)) from error


def load(path: str | Path) -> ConfigurationAgent:
    """Return the agent of a checkpoint folder, ready to predict on the CPU without torch.

    Raises:
        ModelError: The folder or one of its files is missing, damaged, or does not fit together.
    """
    path = Path(path)
    if not (path / CONFIG_FILE).is_file():
        raise ModelError(f"{path} lacks {CONFIG_FILE}; give the whole folder, of a training {path / 'checkpoint'}")
    try:
        config = AgentConfig.from_dict(read_sealed(path)[0])
    except (ValueError, RecursionError) as error:  # an InputError is a ValueError
        raise ModelError(
            f"{path / CONFIG_FILE} or a file that it names is damaged: {error}; copy the folder again or train again"
        ) from error
    weights = {}
    if config.feature_dim:
        try:
            weights = load_tensors((path / WEIGHTS_FILE).read_bytes())
        except (OSError, SafetensorError, KeyError) as error:
            # A KeyError is a number type that NumPy lacks, such as bfloat16.
            raise ModelError(
                f"{path / WEIGHTS_FILE} is missing or damaged ({error}); copy it or train again"
            ) from error
    try:
        return ConfigurationAgent(config, weights)
    except InputError as error:
        raise ModelError(
            f"{path / WEIGHTS_FILE} does not fit {CONFIG_FILE}: {error}; copy both from one training"
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
