"""Adapters: small trained parts on an encoder that is already there, each a folder that explains itself.

A folder holds `config.json`, `model.safetensors` and `README.md`; no pickle is ever read. The configuration has the
hash of every file, so an incomplete, mixed or damaged folder is detected.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.storage import CONFIG_FILE, read_sealed, replace_folder, sealed
from corag.errors import ModelError
from corag.models.encoders import WEIGHTS_SHA256
from corag.optional import require

FORMAT_VERSION = 1
BASE = "all-MiniLM-L6-v2"
WEIGHTS_FILE, CARD_FILE = "model.safetensors", "README.md"
FOLDER = Path(__file__).resolve().parents[2] / "checkpoints"
"""Trained parts that ship with the project: beside the packages, in the source tree and in an installed wheel."""


class Adapter(NamedTuple):
    """What an adapter is: for which part, in what form its tensors are, and what JSON values its part needs besides."""

    name: str
    form: str
    settings: Mapping[str, Any]
    tensors: Mapping[str, NDArray[Any]]


def save_adapter(folder: str | Path, adapter: Adapter, card: str) -> None:
    """Write an adapter and its card in place of an older one; `ModelError` if the folder holds something else."""
    weights: bytes = require("safetensors.numpy", "models").save(
        {name: np.ascontiguousarray(tensor) for name, tensor in adapter.tensors.items()}
    )
    values = {"format_version": FORMAT_VERSION, **adapter._asdict(), "base": BASE, "base_sha256": WEIGHTS_SHA256}
    del values["tensors"]
    files: dict[str, str | bytes] = {CARD_FILE: card, WEIGHTS_FILE: weights}
    files[CONFIG_FILE] = sealed(values, files)
    try:
        replace_folder(folder, files, "an adapter")
    except FileExistsError as error:
        raise ModelError(str(error)) from error


def load_adapter(folder: str | Path, form: str | None = None) -> Adapter:
    """Read an adapter, of any form if None, and check that it is whole and fits the encoder of this release.

    Its tensors are in their stored precision.

    Raises:
        MissingExtraError: safetensors is not installed.
        ModelError: It is missing, damaged, incomplete, of a newer format, of another form, or for another encoder.
    """
    file = Path(folder) / CONFIG_FILE
    try:
        values, hashes = read_sealed(Path(folder))
        if (version := values["format_version"]) != FORMAT_VERSION:
            raise ModelError(f"{file} has format_version {version!r}, expected {FORMAT_VERSION}; train again")
        name, stored_form, settings = values["name"], values["form"], values["settings"]
        base, _ = (values["base"], values["base_sha256"]), hashes[WEIGHTS_FILE]  # weights are sealed, too
        weights = (Path(folder) / WEIGHTS_FILE).read_bytes()
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise ModelError(
            f"{folder} is not a whole adapter ({type(error).__name__}: {error}); give a folder with {CONFIG_FILE} and "
            f"{WEIGHTS_FILE}, copy it again, or train again"
        ) from error
    if form not in (None, stored_form):
        raise ModelError(f"{folder} holds an adapter of the form {stored_form!r}, expected {form!r}; give another")
    if base != (BASE, WEIGHTS_SHA256):
        raise ModelError(
            f"{folder} was trained on {base[0]} with sha256 {base[1]}, expected {BASE} with sha256 {WEIGHTS_SHA256}; "
            "give an adapter for this encoder"
        )
    return Adapter(name, stored_form, settings, require("safetensors.numpy", "models").load(weights))


def shipped_adapter(name: str) -> Path:
    """Return the folder of an adapter that ships with the project; `ModelError` if it is not there."""
    path = FOLDER / name
    if not (path / CONFIG_FILE).is_file():
        raise ModelError(f"the adapter {name!r} is not in {FOLDER}; install corag again, or give the folder of a copy")
    return path
