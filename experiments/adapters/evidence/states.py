"""Token states kept on disk, so that a training that is run again encodes only what is new."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corag.models.engine.source import Float32
from corag.models.minilm import DIMENSION, MiniLMEncoder, Tokens

_RECORD = np.dtype([("key", "S32"), ("start", "<i8"), ("rows", "<i8")])
_BLOCK = 256


class KeptStates:
    """An encoder whose states are kept in a folder, in half precision.

    Two files that only grow: the states, and one record for each text. A record is written after its states, so what
    a kill leaves unfinished is not in the index, and is written over.

    Args:
        encoder: Encodes what is not kept.
        folder: Where; made when missing.
    """

    def __init__(self, encoder: MiniLMEncoder, folder: str | Path) -> None:
        self._encoder = encoder
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        self._states, self._index = path / "states.f16", path / "index.bin"
        self._states.touch()
        self._index.touch()
        whole = self._index.stat().st_size // _RECORD.itemsize
        records = np.fromfile(self._index, dtype=_RECORD, count=whole)
        self._places = {
            bytes(key).ljust(32, b"\0"): (int(start), int(rows)) for key, start, rows in records
        }  # NumPy drops zeros at the end of a key
        self._rows = max((start + rows for start, rows in self._places.values()), default=0)
        with self._index.open("r+b") as file:
            file.truncate(whole * _RECORD.itemsize)
        with self._states.open("r+b") as file:
            file.truncate(self._rows * DIMENSION * 2)

    def tokenize(self, texts: Sequence[str], *, offsets: bool = False) -> Tokens:
        """Return the token ids of each text; see `MiniLMEncoder`."""
        return self._encoder.tokenize(texts, offsets=offsets)

    def states(self, ids: Sequence[NDArray[np.int64]]) -> list[Float32]:
        """Return the last layer of each text, special tokens included, `[length + 2, 384]` each."""
        keys = [hashlib.sha256(row.astype("<i8").tobytes()).digest() for row in ids]
        new = {key: row for key, row in zip(keys, ids, strict=True) if key not in self._places}
        names = list(new)
        for start in range(0, len(names), _BLOCK):
            block = names[start : start + _BLOCK]
            self._keep(block, self._encoder.states([new[key] for key in block]))
        return [self._read(*self._places[key]) for key in keys]

    def _keep(self, keys: Sequence[bytes], states: Sequence[Float32]) -> None:
        records = np.zeros(len(keys), dtype=_RECORD)
        with self._states.open("ab") as file:
            for record, key, rows in zip(records, keys, states, strict=True):
                file.write(rows.astype("<f2").tobytes())
                record["key"], record["start"], record["rows"] = key, self._rows, len(rows)
                self._places[key] = (self._rows, len(rows))
                self._rows += len(rows)
        with self._index.open("ab") as file:
            file.write(records.tobytes())

    def _read(self, start: int, rows: int) -> Float32:
        size = DIMENSION * 2
        states = np.fromfile(self._states, dtype="<f2", count=rows * DIMENSION, offset=start * size)
        return states.reshape(rows, DIMENSION).astype(np.float32)
