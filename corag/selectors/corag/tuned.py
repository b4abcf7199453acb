"""Checkpoints that choose a whole configuration: one for all questions, or by the kind of question."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from corag.errors import ModelError
from corag.models.trained import shipped_checkpoint
from corag.optional import require, warn_once
from corag.selectors.corag.features import check_recipe
from corag.selectors.corag.routing import Kind, Router, Worth
from corag.types import FloatArray

if TYPE_CHECKING:
    from corag.index.search import Retrieval

FORM = "corag-tuned"
FORMAT_VERSION = 2
CONFIG_FILE, WEIGHTS_FILE, NETWORK = "config.json", "model.safetensors", "network"
CENTRES = "centres"
FIGURES = ("quality", "budget_share", "seconds")


class Configured(NamedTuple):
    """A selector as `name(key=value, ...)`, and how its candidates are best found in an index, or None."""

    selector: str
    retrieval: Retrieval | None = None

    def __str__(self) -> str:
        return self.selector if self.retrieval is None else f"{self.retrieval} > {self.selector}"


@dataclass(frozen=True)
class Tuned:
    """What a checkpoint says.

    Attributes:
        path: Its folder.
        configurations: What is chosen among, `C`.
        router: Chooses.
        embedder: Embeds questions for the router.
        features: Parts of the router's feature vector.
        priced: Whether costs are known, so that preferences can be had.
        record: All that the checkpoint records.
    """

    path: Path
    configurations: tuple[Configured, ...]
    router: Router
    embedder: str = "minilm"
    features: tuple[str, ...] = ("query",)
    priced: bool = True
    record: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path) -> Tuned:
        """Read a checkpoint; one that is damaged or of a newer version is a `ModelError`."""
        folder = Path(path)
        try:
            record = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
            version = record["format_version"]
            if version == 1:
                return _of_first_form(folder, record)
            if version != FORMAT_VERSION:
                raise ModelError(
                    f"{folder} has format_version {version!r}, this version reads {FORMAT_VERSION}; tune again"
                )
            return _read(folder, record)
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise ModelError(f"{folder} is no readable checkpoint of corag tune ({error}); tune again") from error


def _read(folder: Path, record: Mapping[str, Any]) -> Tuned:
    configurations = tuple(Configured(str(one["selector"]), one["retrieval"]) for one in record["configurations"])
    kinds = tuple(Kind(str(one["name"]), str(one["about"]), int(one["questions"])) for one in record["kinds"])
    shape = (len(kinds), len(configurations))
    network = None
    if record["network"]:
        from agent import load

        network = load(folder / NETWORK)
    as_good = record["as_good"]
    router = Router(
        kinds,
        _worth(record["worth"], shape),
        _worth(record["unknown"], shape[1:]),
        _centres(folder) if len(kinds) > 1 else np.zeros((0, 0)),
        float(record["sharpness"]),
        float(record["unsure_below"]),
        float(record["min_gain"]),
        None if as_good is None else np.array(as_good, dtype=np.float64),
        network,
    )
    features = check_recipe(record["features"])
    return Tuned(folder, configurations, router, str(record["embedder"]), features, record=record)


def _of_first_form(folder: Path, record: Mapping[str, Any]) -> Tuned:
    """Return what a checkpoint of format version 1 says: it knows neither kinds by name nor costs."""
    warn_once(
        f"{folder} is a checkpoint of an older form, which knows no costs; it works as before, tune again for more"
    )
    chosen = Configured(str(record["chosen"]["selector"]), record["chosen"]["retrieval"])
    of_kinds = tuple(Configured(str(name), chosen.retrieval) for name in record["router"] or ())
    configurations = tuple(dict.fromkeys((chosen, *of_kinds)))
    unknown = np.array([float(one == chosen) for one in configurations])
    centres = np.zeros((0, 0))
    quality = unknown[None]
    if of_kinds:
        centres = _centres(folder)
        quality = np.array([[float(one == own) for one in configurations] for own in of_kinds])
    kinds = tuple(Kind(str(number), f"kind {number} of your questions") for number in range(1, len(quality) + 1))
    router = Router(kinds, _costless(quality), _costless(unknown), centres)
    return Tuned(folder, configurations, router, str(record["embedder"]), priced=False, record=record)


def _centres(folder: Path) -> FloatArray:
    tensors = require("safetensors.numpy", "models").load_file(folder / WEIGHTS_FILE)
    return np.asarray(tensors[CENTRES], dtype=np.float64)


def _worth(figures: Mapping[str, Any], shape: Sequence[int]) -> Worth:
    arrays = [np.array(figures[name], dtype=np.float64) for name in FIGURES]
    for name, array in zip(FIGURES, arrays, strict=True):
        if array.shape != tuple(shape) or not np.isfinite(array).all():
            raise ValueError(f"{name} is no array of {list(shape)} finite numbers")
    return Worth(*arrays)


def _costless(quality: FloatArray) -> Worth:
    return Worth(quality, np.zeros_like(quality), np.zeros_like(quality))


def tuned_folder(agent: object) -> Path | None:
    """Return the folder of such a checkpoint where an agent is given as one, or by the name of one that ships."""
    if not isinstance(agent, str | Path):
        return None
    folder = Path(agent)
    if isinstance(agent, str) and not folder.exists() and len(folder.parts) == 1:
        folder = shipped_checkpoint(agent) or folder
    try:
        record = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return folder if isinstance(record, dict) and record.get("form") == FORM else None
