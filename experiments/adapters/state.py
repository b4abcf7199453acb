"""The state of an unfinished training of an adapter: one file, replaced as a whole, so that its parts always agree.

It is a safetensors file whose header carries a JSON text; no pickle is involved.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from agent.files import replace_atomically

logger = logging.getLogger(__name__)

_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class Standing:
    """How far a training has come.

    Attributes:
        epoch: Epochs that are done.
        batch: Batches of the next epoch that are done.
        step: Batches in all.
        tokens: Tokens read in all.
        seconds: Time spent, over all calls.
        curve: Figures of the validations so far.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    curve: list[dict[str, Any]] = field(default_factory=list)


def write_state(
    path: Path,
    fingerprint: str,
    standing: Standing,
    values: Sequence[tuple[str, torch.Tensor]],
    averages: Sequence[torch.Tensor],
    optimizer: torch.optim.Optimizer,
) -> None:
    """Replace the state file in one step.

    Args:
        path: The file.
        fingerprint: Of data and settings.
        standing: How far the training has come.
        values: What is trained, by name.
        averages: Of the values over the steps, in their order.
        optimizer: AdamW.
    """
    tensors = {}
    for (name, value), average in zip(values, averages, strict=True):
        tensors[f"value.{name}"] = value.detach().contiguous()
        tensors[f"average.{name}"] = average.contiguous()
        for moment in _MOMENTS:
            if value in optimizer.state:
                tensors[f"{moment}.{name}"] = optimizer.state[value][moment].contiguous()
    header = json.dumps({"fingerprint": fingerprint, "standing": asdict(standing)})
    replace_atomically(path, save(tensors, metadata={"training": header}))


def read_state(
    path: Path,
    fingerprint: str,
    values: Sequence[tuple[str, torch.Tensor]],
    averages: Sequence[torch.Tensor],
    optimizer: torch.optim.Optimizer,
) -> Standing:
    """Set values, averages and optimizer to a training's state, and return how far it had come.

    A file that cannot be read, or belongs to other data or settings, is passed over with a warning.
    """
    if not path.exists():
        return Standing()
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads(file.metadata()["training"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        standing = Standing(**header["standing"])
        found = header["fingerprint"]
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s cannot be read (%s); training starts anew", path, error)
        return Standing()
    if found != fingerprint:
        logger.warning("%s belongs to other data or settings; training starts anew", path)
        return Standing()
    with torch.no_grad():
        for (name, value), average in zip(values, averages, strict=True):
            value.copy_(tensors[f"value.{name}"])
            average.copy_(tensors[f"average.{name}"])
            if f"{_MOMENTS[0]}.{name}" in tensors:
                moments = {moment: tensors[f"{moment}.{name}"] for moment in _MOMENTS}
                optimizer.state[value] = {"step": torch.tensor(float(standing.step)), **moments}
    return standing
