"""A checkpoint is a folder: `config.json`, `model.safetensors` where it has weights, and the card `README.md`.

`config.json` has the SHA-256 of every file and of its own settings, so an incomplete, mixed or damaged folder is
detected. No pickle is ever read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.checks import check_path_like
from common.errors import ModelError
from common.storage import CONFIG_FILE, read_sealed, replace_folder, sealed

WEIGHTS_FILE, CARD_FILE = "model.safetensors", "README.md"


def save_checkpoint(
    folder: str | Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    card: str,
    extra: Mapping[str, str | bytes] | None = None,
) -> None:
    """Write a checkpoint in place of an older one; a folder that holds something else is a `ModelError`.

    `config` holds JSON values, `card` is Markdown, and `extra` are further files by name, such as a page.
    """
    from safetensors.numpy import save

    files: dict[str, str | bytes] = {CARD_FILE: card, **(extra or {})}
    if tensors:
        # safetensors writes the memory of an array as it lies, whatever its strides.
        files[WEIGHTS_FILE] = save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})
    files[CONFIG_FILE] = sealed(config, files)
    replace_folder(folder, files, optional=(WEIGHTS_FILE,))


def load_checkpoint(folder: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the settings of a checkpoint, and its tensors in their stored precision.

    Raises:
        InputError: The folder is no path.
        ModelError: It or one of its files is missing, damaged, or not as it was when it was written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    check_path_like("a checkpoint", folder)
    folder = Path(folder)
    try:
        values, hashes = read_sealed(folder)
        return values, load((folder / WEIGHTS_FILE).read_bytes()) if WEIGHTS_FILE in hashes else {}
    except (OSError, ValueError, RecursionError, KeyError, SafetensorError) as error:
        # A KeyError is a number type that NumPy lacks, such as bfloat16.
        raise ModelError(
            f"{folder} is not a whole checkpoint ({type(error).__name__}: {error}); give a folder with {CONFIG_FILE} "
            f"and {WEIGHTS_FILE}, of a training {folder / 'checkpoint'}, copy it again, or train again"
        ) from error
