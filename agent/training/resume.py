"""The state of an unfinished training: one file, replaced as a whole, so that its parts always agree.

It is a safetensors file whose header carries a JSON text; no pickle is involved.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_tensors

from agent.files import replace_file

Arrays = Mapping[str, NDArray[np.float32]]
History = tuple[dict[str, float], ...]

_log = logging.getLogger(__name__)


def write_state(path: Path, fingerprint: str, facts: Mapping[str, Any], arrays: Arrays) -> None:
    """Replace a state file in one step: JSON `facts` and named arrays; `fingerprint` hashes data and settings."""
    header = json.dumps({"fingerprint": fingerprint, **facts})
    replace_file(path, save_tensors(dict(arrays), metadata={"training": header}))


def read_state(path: Path, fingerprint: str) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]] | None:
    """Return the facts and arrays that an interrupted training with the same data and settings left, if any.

    A file that is damaged or belongs to other data or settings is ignored with a warning.
    """
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            facts = json.loads(file.metadata()["training"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        found = facts.pop("fingerprint")
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        _log.warning("%s cannot be read (%s); training starts anew", path, error)
        return None
    if found != fingerprint:
        _log.warning("%s belongs to other data or settings; training starts anew", path)
        return None
    return facts, arrays


@dataclass(frozen=True)
class ResumeState:
    """The state of an agent's training at the end of an epoch, with the figures of each epoch so far.

    `model` holds the weights after the last epoch, for scaled features where the training scales them; `best` those
    after the best epoch, for features as they are; `optimizer` its moments and step counts, named `<parameter
    index>.<name>`.
    """

    history: History = ()
    model: Arrays = field(default_factory=dict)
    best: Arrays = field(default_factory=dict)
    optimizer: Arrays = field(default_factory=dict)


def write_resume(path: Path, fingerprint: str, state: ResumeState) -> None:
    """Replace the state file of an agent's training."""
    groups = {"model": state.model, "best": state.best, "optimizer": state.optimizer}
    arrays = {f"{group}/{name}": array for group, named in groups.items() for name, array in named.items()}
    write_state(path, fingerprint, {"history": state.history}, arrays)


def read_resume(path: Path, fingerprint: str) -> ResumeState | None:
    """Return the state of an interrupted training of an agent, if any; see `read_state`."""
    if (state := read_state(path, fingerprint)) is None:
        return None
    facts, arrays = state
    model, best, optimizer = (
        {name.removeprefix(group): array for name, array in arrays.items() if name.startswith(group)}
        for group in ("model/", "best/", "optimizer/")
    )
    return ResumeState(tuple(facts["history"]), model, best, optimizer)
