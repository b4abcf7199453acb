"""What earlier tables of an index hold: chunks of files that have not changed, and vectors of known texts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.index.store import CHUNK_COLUMNS, open_table, to_chunk
from corag.types import Chunk


class Previous:
    """An earlier generation of an index.

    Attributes:
        settings: How its chunks were made.
        files: File -> what its build knew of it.
        complete: False for a build that was abandoned.
        table: Its chunks; None if it has none yet.
    """

    def __init__(self, database: Any, record: Mapping[str, Any]) -> None:
        self.settings: Mapping[str, Any] = record["settings"]
        self.files: Mapping[str, Any] = record.get("files") or {}
        self.complete = record["state"] == "complete"
        self.table = open_table(database, record["table"])

    def chunks(self, first: int, num_chunks: int) -> list[Chunk]:
        """Return so many chunks from a position on."""
        rows = _rows(self.table, range(first, first + num_chunks), CHUNK_COLUMNS).to_pylist()
        return [to_chunk(row) for row in sorted(rows, key=lambda row: row["position"])]


class KnownVectors:
    """Finds vectors by text; holds 16 bytes for each text in memory.

    Args:
        tables: Tables of chunks by the same embedder.
    """

    def __init__(self, tables: Sequence[Any]) -> None:
        self._tables = [(table, *_sorted_codes(table)) for table in tables if table.count_rows()]

    def __contains__(self, text: str) -> bool:
        code = _code(text)
        return any(_place(codes, code) is not None for _, codes, _ in self._tables)

    def vectors(self, texts: Sequence[str]) -> list[NDArray[np.float32] | None]:
        """Return the vector of each text, `[d]`, or None for one that is not known."""
        found: dict[str, NDArray[np.float32]] = {}
        for table, codes, positions in self._tables:
            places = [_place(codes, _code(text)) for text in texts if text not in found]
            if wanted := sorted({int(positions[place]) for place in places if place is not None}):
                rows = _rows(table, wanted, ["text", "vector"])
                numbers = rows["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
                # Different texts may have one code.
                found.update(zip(rows["text"].to_pylist(), numbers.reshape(len(wanted), -1), strict=True))
        return [found.get(text) for text in texts]


def _sorted_codes(table: Any) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the codes of a table's texts in ascending order, and the position of each."""
    codes = np.empty(table.count_rows(), dtype=np.uint64)
    for batch in table.search().select(["position", "text"]).to_batches():
        codes[batch["position"].to_numpy()] = [_code(text) for text in batch["text"].to_pylist()]
    positions = np.argsort(codes, kind="stable")
    return codes[positions], positions


def _code(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _place(codes: NDArray[np.uint64], code: int) -> int | None:
    place = int(np.searchsorted(codes, np.uint64(code)))
    return place if place < len(codes) and codes[place] == code else None


def _rows(table: Any, positions: Sequence[int], columns: list[str]) -> Any:
    # Rows stand at their positions.
    return table.take_offsets(list(positions)).select(columns).to_arrow()
