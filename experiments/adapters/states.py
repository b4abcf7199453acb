"""Token states that training keeps on disk: more of them than fit the memory, and a resumed run reads them again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from corag.memory import DiskStore
from corag.models.minilm import DIMENSION, Encoded, MiniLMEncoder, TextEncoder

AT_ONCE = 256


class StoredEncoder(TextEncoder):
    """An encoder whose states, about 200 KB a text, are kept in a SQLite file, and so are all in half precision.

    Raises:
        DataError: The file cannot be used.
    """

    def __init__(self, encoder: MiniLMEncoder, path: Path) -> None:
        self._encoder = encoder
        self._file = DiskStore(path, "token states in half precision")

    def encoded(self, texts: Sequence[str], window: int = 0) -> list[Encoded]:
        """See `TextEncoder.encoded`."""
        windows = self._encoder.windows(texts, window)
        keys = [hashlib.sha256(ids.astype("<i8").tobytes()).digest() for ids, _, _ in windows]
        rows = dict(zip(keys, (ids for ids, _, _ in windows), strict=True))

        def run(missing: list[bytes]) -> Iterator[bytes]:
            return (states.astype("<f2").tobytes() for states in self._encoder.states([rows[key] for key in missing]))

        stored = self._file.get_many(keys, run, AT_ONCE)
        try:
            states = [np.frombuffer(data, "<f2").reshape(-1, DIMENSION).astype(np.float32) for data in stored]
        except ValueError as error:
            raise self._file.damaged(f"a value in it is damaged ({error})") from error
        return [Encoded.of(ids, starts, of_text, n) for (ids, starts, n), of_text in zip(windows, states, strict=True)]
