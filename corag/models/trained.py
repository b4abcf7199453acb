"""Adapters: small trained parts on an encoder that is already there, each a checkpoint; see `common.checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from common.checkpoint import load_checkpoint, save_checkpoint
from common.storage import CONFIG_FILE
from corag.errors import InputError, ModelError
from corag.models.encoders import WEIGHTS_SHA256, TextEncoder
from corag.optional import needed

FORMAT_VERSION = 1
BASE = "all-MiniLM-L6-v2"
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
    values = {"format_version": FORMAT_VERSION, **adapter._asdict(), "base": BASE, "base_sha256": WEIGHTS_SHA256}
    tensors = values.pop("tensors")
    with needed("safetensors", "models"):
        save_checkpoint(folder, values, tensors, card)


def load_adapter(folder: str | Path, form: str | None = None) -> Adapter:
    """Read an adapter, of any form if None, and check that it is whole and fits the encoder of this release.

    Its tensors are in their stored precision.

    Raises:
        MissingExtraError: safetensors is not installed.
        ModelError: It is missing, damaged, incomplete, of a newer format, of another form, or for another encoder.
    """
    with needed("safetensors", "models"):
        values, tensors = load_checkpoint(folder)
    expected = {"format_version": FORMAT_VERSION, "base": BASE, "base_sha256": WEIGHTS_SHA256}
    expected |= {} if form is None else {"form": form}
    for name, value in expected.items():
        if values.get(name) != value:
            raise ModelError(f"{folder} has {name} {values.get(name)!r}, expected {value!r}; train again")
    try:
        return Adapter(values["name"], values["form"], values["settings"], tensors)
    except KeyError as error:
        raise ModelError(f"{folder} lacks {error}; copy it again, or train again") from error


def check_base(name: str, encoder: object) -> None:
    """Raise `InputError` if a part with an adapter is given another encoder than adapters are for, or its name."""
    given = encoder.model_name if isinstance(encoder, TextEncoder) else encoder
    if given != "minilm":
        raise InputError(
            f"{name} was trained on the states of {BASE}, not on those of {given!r:.80}; leave encoder out, or use "
            f"late(encoder={given!s:.80})"
        )


def shipped_adapter(name: str) -> Path:
    """Return the folder of an adapter that ships with the project; `ModelError` if it is not there."""
    path = FOLDER / name
    if not (path / CONFIG_FILE).is_file():
        raise ModelError(f"the adapter {name!r} is not in {FOLDER}; install corag again, or give the folder of a copy")
    return path
