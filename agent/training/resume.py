"""The state of an unfinished training: one file, replaced as a whole, so that its parts always agree.

It is a safetensors file whose header carries a JSON text; no pickle is involved.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_tensors

from agent.files import replace_file

Arrays = Mapping[str, NDArray[np.float32]]

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
