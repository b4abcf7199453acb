"""Checkpoints of `corag tune`: a configuration chosen for a user's questions, or one for each kind of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corag.errors import ModelError
from corag.optional import require
from corag.types import Embedder, FloatArray

FORM = "corag-tuned"
FORMAT_VERSION = 1
CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
CENTRES = "centres"


@dataclass(frozen=True)
class Tuned:
    """What a checkpoint of `corag tune` says.

    Attributes:
        path: Its folder.
        selector: Selector that was chosen, as `name(key=value, ...)`.
        retrieval: How candidates are best found in an index, or None.
        embedder: Embedder of the router.
        selectors: Selectors of the kinds of questions that a router tells apart; empty without one.
        centres: Unit vector of each kind, `[k, d]`.
        record: All that the checkpoint records.
    """

    path: Path
    selector: str
    retrieval: str | None = None
    embedder: str = "minilm"
    selectors: tuple[str, ...] = ()
    centres: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    record: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path) -> Tuned:
        """Read a checkpoint; one that is damaged or of another version is a `ModelError`."""
        folder = Path(path)
        try:
            record = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
            version = record["format_version"]
            if version != FORMAT_VERSION:
                raise ModelError(
                    f"{folder} has format_version {version!r}, this version reads {FORMAT_VERSION}; tune again"
                )
            selectors = tuple(map(str, record["router"] or ()))
            centres = np.zeros((0, 0))
            if selectors:
                load_file = require("safetensors.numpy", "models").load_file
                centres = load_file(folder / WEIGHTS_FILE)[CENTRES].astype(np.float64)
                if centres.ndim != 2 or len(centres) != len(selectors):
                    raise ValueError(f"{len(selectors)} selectors for centres of shape {centres.shape}")
            chosen = record["chosen"]
            return cls(
                folder,
                str(chosen["selector"]),
                chosen["retrieval"],
                str(record["embedder"]),
                selectors,
                centres,
                record,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{folder} is no readable checkpoint of corag tune ({error}); tune again") from error

    def selectors_of(self, questions: Sequence[str], embedder: Embedder) -> list[str]:
        """Return the selector for each question."""
        if not self.selectors:
            return [self.selector] * len(questions)
        vectors = embedder.embed(questions).astype(np.float64)
        return [self.selectors[place] for place in (vectors @ self.centres.T).argmax(axis=1).tolist()]


def is_tuned(agent: object) -> bool:
    """Return whether an agent is given as the folder of such a checkpoint."""
    if not isinstance(agent, str | Path):
        return False
    try:
        record = json.loads((Path(agent) / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and record.get("form") == FORM
