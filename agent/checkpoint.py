"""A checkpoint is a folder: `config.json`, `model.safetensors`, and the card `README.md`. No pickle is ever read.

An agent without a network, which names one configuration for every question, has no `model.safetensors`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from agent.config import SETTINGS, AgentConfig
from agent.errors import AgentError, CheckpointError
from agent.files import replace_folder
from agent.predict import ConfigurationAgent

CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
PICKLE_SUFFIXES = frozenset({".pkl", ".pickle", ".pth", ".pt", ".ckpt", ".bin"})


def save(
    path: str | Path, agent: ConfigurationAgent, card: str, extra: Mapping[str, str | bytes] | None = None
) -> None:
    """Write the agent and its model card (Markdown) as a checkpoint folder; see `agent.files.replace_folder`.

    `extra` are further files by name, such as a page. A `path` that is something other than a checkpoint, which would
    be lost, is a `CheckpointError`.
    """
    files: dict[str, str | bytes] = {CARD_FILE: card, **(extra or {})}
    if agent.has_network:
        files[WEIGHTS_FILE] = save_tensors(dict(agent.weights))
    files[CONFIG_FILE] = json.dumps(agent.config.to_dict(), indent=2) + "\n"
    try:
        replace_folder(path, files, "a checkpoint", optional=(WEIGHTS_FILE,))
    except FileExistsError as error:
        raise CheckpointError(str(error)) from error


def load(path: str | Path) -> ConfigurationAgent:
    """Return the agent of a checkpoint folder, ready to predict on the CPU without torch.

    Raises:
        CheckpointError: The folder or one of its files is missing, damaged, a pickle, or does not fit together.
    """
    path = Path(path)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    if not (path / WEIGHTS_FILE).is_file() and (
        pickles := [file for file in files if file.suffix in PICKLE_SUFFIXES and file.is_file()]
    ):
        raise CheckpointError(
            f"{pickles[0]} may be a pickle, which can run code when read; give the weights as {WEIGHTS_FILE}"
        )
    if not (path / CONFIG_FILE).is_file():
        raise CheckpointError(f"{path} lacks {CONFIG_FILE}; give the whole checkpoint folder or train again")
    config = _read_config(path / CONFIG_FILE)
    weights = {}
    if config.feature_dim:
        try:
            weights = load_tensors((path / WEIGHTS_FILE).read_bytes())
        except (OSError, SafetensorError, KeyError) as error:
            # A KeyError is a number type that NumPy lacks, such as bfloat16.
            raise CheckpointError(
                f"{path / WEIGHTS_FILE} is missing or damaged ({error}); copy it or train again"
            ) from error
    try:
        return ConfigurationAgent(config, weights)
    except AgentError as error:
        raise CheckpointError(
            f"{path / WEIGHTS_FILE} does not fit {CONFIG_FILE}: {error}; copy both from one training"
        ) from error


def _read_config(path: Path) -> AgentConfig:
    try:
        return AgentConfig.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:  # an AgentError is a ValueError
        raise CheckpointError(f"{path} is not a valid configuration: {error}; restore it or train again") from error


def model_card(config: AgentConfig, facts: Mapping[str, object], body: str = "") -> str:
    """Return the card as Markdown.

    Args:
        config: Of the agent.
        facts: What helps to trust and rebuild the agent: data, metrics, seed, commit.
        body: Further Markdown, such as a comparison with baselines.
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
        f"Best single configuration, the fallback: `{config.fallback}`.",
    ]
    if config.ranges is not None:
        rows = [[name, *getattr(config.ranges, name)] for name in SETTINGS]
        paragraphs.append(_table(["Setting", "Lowest", "Highest"], rows))
    if facts:
        paragraphs += ["## How it was made", _table(["Fact", "Value"], facts.items())]
    return "\n\n".join(filter(None, [*paragraphs, body.rstrip()])) + "\n"


def _table(titles: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
