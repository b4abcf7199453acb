"""A checkpoint is a folder: `config.json`, `model.safetensors`, `README.md`. No pickle is ever read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from agent.config import AgentConfig
from agent.errors import AgentError, CheckpointError
from agent.files import write_durably
from agent.predict import ConfigurationAgent

FORMAT_VERSION = 1
CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
PICKLE_SUFFIXES = frozenset({".pkl", ".pickle", ".pth", ".pt", ".ckpt", ".bin"})


def save(path: str | Path, agent: ConfigurationAgent, card: str) -> None:
    """Write the agent and its model card (Markdown) as a checkpoint folder.

    The folder is built under a temporary name beside `path` and renamed, so an existing checkpoint is
    replaced only by a complete one; between the two renames it waits as `.<name>.old`.

    Raises:
        CheckpointError: `path` is something other than a checkpoint, which would be lost.
    """
    path = Path(path).absolute()
    _refuse_other_content(path)
    building, old = path.with_name(f".{path.name}.tmp"), path.with_name(f".{path.name}.old")
    for leftover in (building, old):
        shutil.rmtree(leftover, ignore_errors=True)
    building.mkdir(parents=True)
    write_durably(building / CARD_FILE, card.encode())
    write_durably(building / WEIGHTS_FILE, save_tensors(dict(agent.weights)))
    config = {"format_version": FORMAT_VERSION, **agent.config.to_dict()}
    write_durably(building / CONFIG_FILE, (json.dumps(config, indent=2) + "\n").encode())
    if path.exists():
        path.rename(old)
    building.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def load(path: str | Path) -> ConfigurationAgent:
    """Return the agent of a checkpoint folder, ready to predict on the CPU without torch.

    Raises:
        CheckpointError: The folder or one of its files is missing, damaged, of a newer format, a pickle,
            or does not fit together.
    """
    path = Path(path)
    _check_files(path)
    config = _read_config(path / CONFIG_FILE)
    weights = _read_weights(path / WEIGHTS_FILE)
    try:
        return ConfigurationAgent(config, weights)
    except AgentError as error:
        raise CheckpointError(
            f"{path / WEIGHTS_FILE} does not fit {CONFIG_FILE}: {error}; copy both from one training"
        ) from error


def _refuse_other_content(path: Path) -> None:
    if not path.exists():
        return
    names = {file.name for file in path.iterdir()} if path.is_dir() else {path.name}
    others = sorted(names - {CONFIG_FILE, WEIGHTS_FILE, CARD_FILE})
    if others:
        raise CheckpointError(
            f"{path} holds {others[0]!r}, which is no part of a checkpoint and would be deleted; choose another path"
        )


def _check_files(path: Path) -> None:
    if path.suffix in PICKLE_SUFFIXES and path.is_file():
        raise CheckpointError(_pickle_refusal(path))
    if not path.is_dir():
        raise CheckpointError(
            f"{path} is not a checkpoint folder; give the folder that holds {CONFIG_FILE} and {WEIGHTS_FILE}"
        )
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if (path / name).is_file():
            continue
        pickles = sorted(file for file in path.iterdir() if file.suffix in PICKLE_SUFFIXES)
        if name == WEIGHTS_FILE and pickles:
            raise CheckpointError(_pickle_refusal(pickles[0]))
        raise CheckpointError(f"{path} lacks {name}; copy the whole checkpoint folder or train again")


def _pickle_refusal(path: Path) -> str:
    return f"{path} may be a pickle, which can run code when read; give the weights as {WEIGHTS_FILE}"


def _read_config(path: Path) -> AgentConfig:
    try:
        values: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}); restore it or train again") from error
    version = values.pop("format_version", None) if isinstance(values, dict) else None
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format_version {version!r}, but this release reads {FORMAT_VERSION}; "
            "install a matching release or train again"
        )
    try:
        return AgentConfig.from_dict(values)
    except AgentError as error:
        raise CheckpointError(f"{path} is not a valid configuration: {error}; mend it or train again") from error


def _read_weights(path: Path) -> dict[str, NDArray[np.float32]]:
    try:
        weights: dict[str, NDArray[np.float32]] = load_tensors(path.read_bytes())
    except (SafetensorError, KeyError) as error:
        # A KeyError is a number type that NumPy lacks, such as bfloat16.
        raise CheckpointError(f"{path} is damaged ({error}); copy it again or train again") from error
    return weights
