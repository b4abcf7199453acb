"""Adapters: small trained parts on an encoder that is already there, each a folder that explains itself.

A folder holds `config.json`, `model.safetensors` and `README.md`; no pickle is ever read. The configuration is written
last and names size and hash of the weights, so a folder that was half copied, or put together from two, is told from a
whole one.

`merge` puts an adapter's tensors into a network: low-rank updates (LoRA, Hu et al., 2021) and whole tensors. A tensor
`NAME.down` `[r, in]` with `NAME.up` `[out, r]` updates the network's tensor NAME by `up @ down`; any other takes the
place of the network's tensor of its name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.files import replace_folder
from corag.errors import ModelError
from corag.models.minilm import WEIGHTS_SHA256
from corag.optional import require

FORMAT_VERSION = 1
BASE = "all-MiniLM-L6-v2"
CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
FOLDER = Path(__file__).resolve().parents[2] / "checkpoints"
"""Trained parts that ship with the project: beside the packages, in the source tree and in an installed wheel."""


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """What an adapter is.

    Attributes:
        name: What the part that uses it is called, such as `minilm-reader`.
        form: How its tensors are to be used; a part refuses adapters of another form.
        settings: Whatever else its user has to know. Only what JSON can say.
        base: Name of the encoder that it was trained on.
        base_sha256: Of that encoder's weights.
    """

    name: str
    form: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    base: str = BASE
    base_sha256: str = WEIGHTS_SHA256


@dataclass(frozen=True, slots=True)
class Adapter:
    """A loaded adapter.

    Attributes:
        config: What it is.
        tensors: Its tensors by name, in the precision that they are stored in.
        weights_sha256: Of the file that the tensors were read from.
        sha256: Of configuration and weights: whatever values depend on.
    """

    config: AdapterConfig
    tensors: Mapping[str, NDArray[Any]]
    weights_sha256: str
    sha256: str


def save_adapter(folder: str | Path, tensors: Mapping[str, NDArray[Any]], config: AdapterConfig, card: str) -> None:
    """Write an adapter with its model card; one that is already there is replaced only by a complete one.

    Raises:
        ModelError: The folder holds something else, which would be lost.
    """
    weights: bytes = require("safetensors.numpy", "models").save(
        {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    )
    values = {
        "format_version": FORMAT_VERSION,
        **asdict(config),
        "weights_bytes": len(weights),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    files: dict[str, str | bytes] = {
        CARD_FILE: card,
        WEIGHTS_FILE: weights,
        CONFIG_FILE: json.dumps(values, indent=2) + "\n",
    }
    try:
        replace_folder(folder, files, "an adapter")
    except FileExistsError as error:
        raise ModelError(str(error)) from error


def load_adapter(folder: str | Path, form: str | None = None) -> Adapter:
    """Read an adapter, of any form if None, and check that it is whole and made for the encoder that is here.

    Raises:
        MissingExtraError: safetensors is not installed.
        ModelError: It is missing, damaged, half copied, of a newer format, of another form, or for another encoder.
    """
    path = Path(folder)
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (path / name).is_file():
            raise ModelError(
                f"{path} is not an adapter: it lacks {name}; give a folder with {CONFIG_FILE} and {WEIGHTS_FILE}, "
                "and copy it whole"
            )
    values = _read_config(path / CONFIG_FILE)
    try:
        config = AdapterConfig(**{name: values[name] for name in AdapterConfig.__slots__})
        size, sha256 = values["weights_bytes"], values["weights_sha256"]
    except KeyError as error:
        raise ModelError(f"{path / CONFIG_FILE} lacks {error}; copy the folder again or train again") from error
    if form is not None and config.form != form:
        raise ModelError(f"{path} holds an adapter of the form {config.form!r}, but {form!r} is wanted; give another")
    if (config.base, config.base_sha256) != (BASE, WEIGHTS_SHA256):
        raise ModelError(
            f"{path} was trained on {config.base} with sha256 {config.base_sha256}, but here is {BASE} with sha256 "
            f"{WEIGHTS_SHA256}; give an adapter for this encoder"
        )
    weights = (path / WEIGHTS_FILE).read_bytes()
    if len(weights) != size:
        raise ModelError(
            f"{path / WEIGHTS_FILE} has {len(weights)} bytes, not {size}; it was not copied whole: copy it again"
        )
    found = hashlib.sha256(weights).hexdigest()
    if found != sha256:
        raise ModelError(
            f"{path / WEIGHTS_FILE} has sha256 {found}, not {sha256}: damaged, or of another adapter; copy the folder "
            "again"
        )
    tensors = require("safetensors.numpy", "models").load(weights)
    whole = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return Adapter(config, tensors, sha256, whole)


def shipped_checkpoint(name: str) -> Path | None:
    """Return the folder of a part that ships with the project; None if it is not there."""
    path = FOLDER / name
    return path if (path / CONFIG_FILE).is_file() else None


def shipped_adapter(name: str) -> Path:
    """Return the folder of an adapter that comes with the project.

    Raises:
        ModelError: It is not there.
    """
    path = shipped_checkpoint(name)
    if path is None:
        raise ModelError(
            f"the adapter {name!r} is not in {FOLDER}, where source tree and wheel have it; install corag again, or "
            "give the folder of a copy"
        )
    return path


def _read_config(file: Path) -> dict[str, Any]:
    try:
        values: Any = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{file} is not valid JSON ({error}); copy the folder again or train again") from error
    version = values.get("format_version") if isinstance(values, dict) else None
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{file} has format_version {version!r}, but this release reads {FORMAT_VERSION}; install the release of "
            "CORAG that wrote it, or train again"
        )
    return dict(values)


DOWN, UP = ".down", ".up"


def merge(network: Any, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Update a PyTorch module in fp32, in place, with tensors in any precision.

    Raises:
        ModelError: A tensor lacks its other half, or the network has none of its name and shape.
    """
    torch = require("torch", "models")
    state = network.state_dict()
    given = {name: torch.from_numpy(tensor).float() for name, tensor in tensors.items()}
    merged = {}
    for name, tensor in given.items():
        low_rank = name.endswith((DOWN, UP))
        target = name.removesuffix(DOWN).removesuffix(UP)
        value = _product(given, target) if low_rank else tensor
        if target not in state or state[target].shape != value.shape:
            raise ModelError(
                f"the adapter's tensor {target!r} of shape {tuple(value.shape)} does not fit the network; give an "
                "adapter that was trained for this part"
            )
        merged[target] = state[target] + value if low_rank else value
    network.load_state_dict(merged, strict=False)


def _product(given: Mapping[str, Any], target: str) -> Any:
    down, up = given.get(target + DOWN), given.get(target + UP)
    if down is None or up is None or down.ndim != 2 or up.ndim != 2 or up.shape[1] != down.shape[0]:
        raise ModelError(
            f"the adapter's update of {target!r} is not a pair of matrices that can be multiplied; train again"
        )
    return up @ down
