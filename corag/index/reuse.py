"""What earlier tables of an index hold: chunks of files that have not changed, and vectors of known texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.index.store import CHUNK_COLUMNS, open_table, to_chunk
from corag.types import Chunk

_BATCH = 4096


class Rows:
    """Rows of a table by their positions; holds 16 bytes for each in memory.

    Args:
        table: The table, as it is now.

    Attributes:
        positions: Ascending.
    """

    def __init__(self, table: Any) -> None:
        self._table = table
        found = table.search().select(["position"]).with_row_id(True).to_arrow()
        positions: NDArray[np.int64] = found["position"].to_numpy()
        # Merging small files may move rows.
        order = np.argsort(positions, kind="stable")
        self._as_stored = bool((order[1:] > order[:-1]).all())
        self.positions = positions[order]
        self._ids = found["_rowid"].to_numpy()[order]

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, positions: NDArray[np.int64], columns: Sequence[str]) -> Any:
        """Return the rows at positions, in ascending order, as an Arrow table."""
        ids = self._ids[np.searchsorted(self.positions, positions)]
        taken = self._table.take_row_ids(ids.tolist()).select(["position", *columns]).to_arrow()
        return taken.take(np.argsort(taken["position"].to_numpy(), kind="stable"))

    def batches(self, positions: NDArray[np.int64], columns: Sequence[str]) -> Iterator[Any]:
        """Yield the rows at positions, in ascending order, with their positions."""
        if len(positions) == len(self) and self._as_stored:
            yield from self._table.search().select(["position", *columns]).to_batches()
            return
        for start in range(0, len(positions), _BATCH):
            yield self.take(positions[start : start + _BATCH], columns)


class Previous:
    """An earlier generation of an index.

    Args:
        database: Where it lies.
        record: Its record.
        in_place: What is unchanged stays where it is.

    Attributes:
        settings: How its chunks were made.
        files: File -> what its build knew of it.
        complete: False for a build that was abandoned.
        table: Its chunks, in the version that is read; None if it has none yet.
    """

    def __init__(self, database: Any, record: Mapping[str, Any], *, in_place: bool = False) -> None:
        self.settings: Mapping[str, Any] = record["settings"]
        self.files: Mapping[str, Any] = record.get("files") or {}
        self.complete = record["state"] == "complete"
        self.in_place = in_place
        self.table = open_table(database, record["table"], record.get("version"))

    @cached_property
    def rows(self) -> Rows:
        """Its rows."""
        return Rows(self.table)

    def unchanged(self, runs: Sequence[int]) -> list[range] | list[Chunk]:
        """Return chunks that stay: by their positions if they stay in place, else themselves.

        Args:
            runs: First position and number of chunks, and of further chunks.
        """
        ranges = [range(first, first + number) for first, number in zip(runs[::2], runs[1::2], strict=True)]
        if self.in_place:
            return ranges
        if not any(ranges):
            return []
        positions = np.concatenate([np.arange(run.start, run.stop) for run in ranges])
        # A file's chunks keep their order: later ones of a file that grew may stand before.
        found = {row["position"]: row for row in self.rows.take(positions, CHUNK_COLUMNS).to_pylist()}
        return [to_chunk(found[position]) for position in positions.tolist()]


class KnownVectors:
    """Finds vectors by text; holds 16 bytes for each text in memory.

    Args:
        rows: Rows of chunks by the same embedder.
        positions: Those to look at; None for all.
    """

    def __init__(self, rows: Sequence[Rows], positions: NDArray[np.int64] | None = None) -> None:
        wanted = [(some, some.positions if positions is None else positions) for some in rows]
        self._rows = [(some, *_sorted_codes(some, at)) for some, at in wanted if len(at)]

    def __contains__(self, text: str) -> bool:
        code = _code(text)
        return any(_place(codes, code) is not None for _, codes, _ in self._rows)

    def vectors(self, texts: Sequence[str]) -> list[NDArray[np.float32] | None]:
        """Return the vector of each text, `[d]`, or None for one that is not known."""
        found: dict[str, NDArray[np.float32]] = {}
        for rows, codes, positions in self._rows:
            places = [_place(codes, _code(text)) for text in texts if text not in found]
            if wanted := sorted({int(positions[place]) for place in places if place is not None}):
                taken = rows.take(np.array(wanted), ["text", "vector"])
                numbers = taken["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
                # Different texts may have one code.
                found.update(zip(taken["text"].to_pylist(), numbers.reshape(len(wanted), -1), strict=True))
        return [found.get(text) for text in texts]


def _sorted_codes(rows: Rows, positions: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the codes of texts in ascending order, and the position of each."""
    texts = (text for batch in rows.batches(positions, ["text"]) for text in batch["text"].to_pylist())
    codes = np.fromiter(map(_code, texts), np.uint64, len(positions))
    order = np.argsort(codes, kind="stable")
    return codes[order], positions[order]


def _code(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _place(codes: NDArray[np.uint64], code: int) -> int | None:
    place = int(np.searchsorted(codes, np.uint64(code)))
    return place if place < len(codes) and codes[place] == code else None
