"""The state of an unfinished training: one file, replaced after every epoch, so that its parts always agree.

It is a safetensors file whose header carries a JSON text; no pickle is involved.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_tensors

from agent.files import replace_atomically

Arrays = Mapping[str, NDArray[np.float32]]
History = tuple[dict[str, float], ...]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResumeState:
    """Where a training stands at the end of an epoch.

    Attributes:
        history: The figures of each epoch so far.
        model: Weights after the last epoch, as the training has them.
        best: Weights after the best epoch, as the finished agent has them.
        optimizer: Moments and step counts of the optimizer, named `<parameter index>.<name>`.
    """

    history: History
    model: Arrays
    best: Arrays
    optimizer: Arrays


def write_resume(path: Path, fingerprint: str, state: ResumeState) -> None:
    """Replace the resume file in one step."""
    groups = {"model": state.model, "best": state.best, "optimizer": state.optimizer}
    arrays = {f"{group}/{name}": array for group, named in groups.items() for name, array in named.items()}
    header = json.dumps({"fingerprint": fingerprint, "history": state.history})
    replace_atomically(path, save_tensors(arrays, metadata={"training": header}))


def read_resume(path: Path, fingerprint: str) -> ResumeState | None:
    """Return the state that an interrupted training with the same data and settings left, if any."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads(file.metadata()["training"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        _log.warning("%s cannot be read (%s); training starts anew", path, error)
        return None
    if header["fingerprint"] != fingerprint:
        _log.warning("%s belongs to other data or settings; training starts anew", path)
        return None
    groups: dict[str, dict[str, NDArray[np.float32]]] = {"model": {}, "best": {}, "optimizer": {}}
    for full_name, array in arrays.items():
        group, name = full_name.split("/", 1)
        groups[group][name] = array
    return ResumeState(history=tuple(header["history"]), **groups)
