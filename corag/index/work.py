"""What is to be in an index, and how its chunks get their vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.index.reuse import KnownVectors, Previous
from corag.index.store import accessing, to_rows
from corag.models.vectors import vectors_by
from corag.types import Chunk, Embedder

# Chunks whose vectors are known cost no time, so more of them are stored at once.
_MAX_BATCH = 4096


@dataclass(slots=True)
class IndexWork:
    """What is to be in an index.

    Attributes:
        chunks: Returns the chunks, each id once; given the index that is brought up to date, if there is one. For what
            is unchanged there it may yield ranges of positions instead, if `Previous.in_place`. Called more than once,
            it starts anew.
        fingerprint: Names content and settings; works with the same one make the same index.
        settings: How the chunks are made, JSON values. They may grow until the last chunk was taken.
        files: File -> what is known of it, followed by the first of its chunks, counted from 0, and their number; kept
            for the next update. It may grow likewise.
        updates: Tells from the settings of an index whether this work brings it up to date.
        num_chunks: How many they are, if that is known.
    """

    chunks: Callable[[Previous | None], Iterable[Chunk | range]]
    fingerprint: str
    settings: dict[str, Any]
    files: dict[str, Any] = field(default_factory=dict)
    updates: Callable[[Mapping[str, Any]], bool] = lambda _: False
    num_chunks: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What writing an index took.

    Attributes:
        num_embedded: Chunks that were embedded.
        num_copied: Chunks whose vector an earlier table held, or that stay as they are.
    """

    num_embedded: int = 0
    num_copied: int = 0


def add_chunks(
    table: Any,
    chunks: Iterator[Chunk],
    position: int,
    embedder: Embedder,
    known: KnownVectors,
    uri: str | Path,
    batch_size: int,
    added: Callable[[list[Chunk]], None],
) -> Written:
    """Store chunks at the positions from `position` on; `added` is called with each batch that is stored."""
    num_embedded = num_copied = 0
    for batch, vectors in _batches(chunks, known, batch_size):
        missing = [place for place, vector in enumerate(vectors) if vector is None]
        texts = [batch[place].text for place in missing]
        fresh = dict(zip(missing, vectors_by(embedder, texts, unit=True), strict=True))
        whole = np.array([fresh[i] if vector is None else vector for i, vector in enumerate(vectors)], np.float32)
        with accessing(uri, "write"):
            # Several writers would split the batch and could lose its order.
            rows = to_rows(batch, position, whole)
            # A build that another version began may lack a column.
            table.add(rows.select(table.schema.names), write_parallelism=1)
        position += len(batch)
        num_embedded += len(missing)
        num_copied += len(batch) - len(missing)
        added(batch)
    return Written(num_embedded, num_copied)


def _batches(
    chunks: Iterator[Chunk], known: KnownVectors, batch_size: int
) -> Iterator[tuple[list[Chunk], list[NDArray[np.float32] | None]]]:
    """Yield chunks with the vectors that are known, at most `batch_size` without one."""
    batch: list[Chunk] = []
    num_missing = 0
    for chunk in chunks:
        batch.append(chunk)
        num_missing += chunk.text not in known
        if num_missing == batch_size or len(batch) == max(batch_size, _MAX_BATCH):
            yield batch, known.vectors([one.text for one in batch])
            batch, num_missing = [], 0
    if batch:
        yield batch, known.vectors([one.text for one in batch])
