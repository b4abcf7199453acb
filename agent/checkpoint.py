"""A checkpoint is a folder: `config.json`, `model.safetensors`, and the card `README.md`. No pickle is ever read."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from agent.config import AgentConfig
from agent.errors import AgentError, CheckpointError
from agent.files import replace_folder
from agent.predict import ConfigurationAgent

_log = logging.getLogger(__name__)

FORMAT_VERSION = 1
CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
PICKLE_SUFFIXES = frozenset({".pkl", ".pickle", ".pth", ".pt", ".ckpt", ".bin"})


def save(path: str | Path, agent: ConfigurationAgent, card: str) -> None:
    """Write the agent and its model card (Markdown) as a checkpoint folder; see `agent.files.replace_folder`.

    A `path` that is something other than a checkpoint, which would be lost, is a `CheckpointError`.
    """
    config = {"format_version": FORMAT_VERSION, **agent.config.to_dict()}
    files: dict[str, str | bytes] = {
        CARD_FILE: card,
        WEIGHTS_FILE: save_tensors(dict(agent.weights)),
        CONFIG_FILE: json.dumps(config, indent=2) + "\n",
    }
    try:
        replace_folder(path, files, "a checkpoint")
    except FileExistsError as error:
        raise CheckpointError(str(error)) from error


def load(path: str | Path) -> ConfigurationAgent:
    """Return the agent of a checkpoint folder, ready to predict on the CPU without torch.

    Raises:
        CheckpointError: The folder or one of its files is missing, damaged, of a newer format, a pickle,
            or does not fit together.
    """
    path = Path(path)
    _check_files(path)
    config = _read_config(path / CONFIG_FILE)
    try:
        weights = load_tensors((path / WEIGHTS_FILE).read_bytes())
    except (SafetensorError, KeyError) as error:
        # A KeyError is a number type that NumPy lacks, such as bfloat16.
        raise CheckpointError(f"{path / WEIGHTS_FILE} is damaged ({error}); copy it again or train again") from error
    try:
        return ConfigurationAgent(config, weights)
    except AgentError as error:
        raise CheckpointError(
            f"{path / WEIGHTS_FILE} does not fit {CONFIG_FILE}: {error}; copy both from one training"
        ) from error


def _check_files(path: Path) -> None:
    if path.suffix in PICKLE_SUFFIXES and path.is_file():
        raise CheckpointError(_pickle_refusal(path))
    if not path.is_dir():
        raise CheckpointError(
            f"{path} is not a checkpoint folder; give the folder that holds {CONFIG_FILE} and {WEIGHTS_FILE}"
        )
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (path / name).is_file():
            pickles = sorted(file for file in path.iterdir() if file.suffix in PICKLE_SUFFIXES)
            if name == WEIGHTS_FILE and pickles:
                raise CheckpointError(_pickle_refusal(pickles[0]))
            raise CheckpointError(f"{path} lacks {name}; copy the whole checkpoint folder or train again")


def _pickle_refusal(path: Path) -> str:
    return f"{path} may be a pickle, which can run code when read; give the weights as {WEIGHTS_FILE}"


def _read_config(path: Path) -> AgentConfig:
    try:
        values: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}); restore it or train again") from error
    version = values.pop("format_version", None) if isinstance(values, dict) else None
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format_version {version!r}, but this release reads {FORMAT_VERSION}; "
            "install a matching release or train again"
        )
    if "caution" in values:
        _log.warning("%s is of an older form: what it calls caution is min_lead now; it works as before", path)
    try:
        return AgentConfig.from_dict(values)
    except AgentError as error:
        raise CheckpointError(f"{path} is not a valid configuration: {error}; correct it or train again") from error


TEMPLATE = """\
# CORAG configuration agent

Predicts, for a question, the reranker and the search settings (iterations, exploration, cost weight).

```python
import agent

configuration = agent.load("path/to/this/folder").predict(features)
```

`features`: float, {feature_dim} numbers, made with the embedder `{embedder}` and the recipe {recipe}.

Rerankers, in label order: {rerankers}.{unlabelled}

| Setting | Lowest | Highest |
| --- | --- | --- |
| iterations | {ranges.iterations[0]} | {ranges.iterations[1]} |
| exploration | {ranges.exploration[0]} | {ranges.exploration[1]} |
| cost_weight | {ranges.cost_weight[0]} | {ranges.cost_weight[1]} |

## How it was made

| Fact | Value |
| --- | --- |
{facts}
"""


def model_card(config: AgentConfig, facts: Mapping[str, object]) -> str:
    """Return the card as Markdown; `facts` help to trust and rebuild the agent: data, metrics, seed, commit."""
    return TEMPLATE.format(
        feature_dim=config.feature_dim,
        embedder=config.embedder,
        recipe=_code(config.features),
        rerankers=_code(config.rerankers),
        unlabelled=f" Known by their description alone: {_code(config.unlabelled)}." if config.unlabelled else "",
        ranges=config.ranges,
        facts="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
    )


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
