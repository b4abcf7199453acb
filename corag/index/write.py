"""Writing an index, batch by batch, so that a build that is killed at any moment can go on.

Every LanceDB commit is atomic, so whole batches stay behind. The record that says `complete` is written last.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.errors import DataError, IndexMismatchError, InputError, ModelError
from corag.index.store import (
    FORMAT_VERSION,
    REMEDY,
    IndexManifest,
    accessing,
    chunk_table_names,
    connect,
    in_state,
    metadata_json,
    new_chunk_table_name,
    open_table,
    read_records,
    to_json,
    to_rows,
    write_records,
)
from corag.text.disk import DiskRows, RepeatedIdError
from corag.types import Chunk, Embedder

MIN_CHUNKS_FOR_HNSW = 50_000
"""From this many chunks on a search walks an HNSW graph; below, it compares every vector, which is exact."""
# A graph is built in memory; a million vectors of 1024 numbers, quantised to bytes, take 1 GB.
_MAX_CHUNKS_PER_GRAPH = 1_000_000


def write_index(
    uri: str | Path,
    corpus: StoredChunks,
    embedder: Embedder,
    settings: Mapping[str, Any],
    batch_size: int,
    progress: Callable[[int, int], None] | None,
    overwrite: bool,
) -> None:
    """Embed the chunks and store them, or finish a build that was interrupted; see `ChunkIndex.build`."""
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    wanted = IndexManifest(
        format_version=FORMAT_VERSION,
        embedder_name=embedder.name,
        dimension=embedder.dimension,
        fingerprint=_hash(corpus, settings),
        num_chunks=len(corpus),
        settings=dict(settings),
        state="building",
        table="",
    )
    with accessing(uri, "write"):
        database = connect(uri)
        building = _begin(database, wanted, uri, overwrite=overwrite)
        if building is None:
            return
        table = open_table(database, building.table)
        # An empty table is false.
        if table is None:
            no_vectors = np.zeros((0, building.dimension), dtype=np.float32)
            table = database.create_table(building.table, schema=to_rows([], 0, no_vectors).schema)
        num_stored = table.count_rows()
        _require_rows(table, corpus, num_stored, uri)
    if progress is not None:
        progress(num_stored, len(corpus))
    start = num_stored
    for batch in corpus.batches(start, batch_size):
        vectors = _embed(embedder, batch)
        with accessing(uri, "write"):
            # Several writers would split the batch and could lose its order.
            table.add(to_rows(batch, start, vectors), write_parallelism=1)
        start += len(batch)
        if progress is not None:
            progress(start, len(corpus))
    with accessing(uri, "write"):
        _complete(database, table, building, corpus, uri)


class StoredChunks(Iterable[Chunk]):
    """Chunks in their order, on disk, so that a corpus may be larger than the memory; see `DiskRows`.

    Raises:
        DataError: No chunks, an id that occurs twice, text that is no Unicode, metadata that is no JSON.
    """

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        try:
            self._rows = DiskRows(
                (number, *_checked(chunk), metadata_json(chunk)) for number, chunk in enumerate(chunks)
            )
        except RepeatedIdError as error:
            raise DataError(f"chunk id {error.name!r} occurs twice; every chunk needs an id of its own") from error
        if not len(self._rows):
            raise DataError("there are no chunks to index; an index needs at least one: check the corpus file")

    @classmethod
    def of(cls, chunks: Iterable[Chunk]) -> StoredChunks:
        """Return chunks that are stored already as they are, and store others."""
        return chunks if isinstance(chunks, cls) else cls(chunks)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Chunk]:
        return self.chunks()

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        """Yield the chunks from the place `start` on."""
        for _, name, text, metadata in self._rows.rows(start):
            yield Chunk(name, text, json.loads(metadata))

    def batches(self, start: int, size: int) -> Iterator[list[Chunk]]:
        """Yield the chunks from the place `start` on, `size` at a time."""
        chunks = self.chunks(start)
        while batch := list(islice(chunks, size)):
            yield batch

    def ids(self) -> Iterator[str]:
        """Yield the ids."""
        return self._rows.ids()

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield id, text and metadata as JSON of each chunk."""
        for _, name, text, metadata in self._rows:
            yield name, text, metadata


def _checked(chunk: Chunk) -> tuple[str, str]:
    """Return id and text; raise unless they can be stored."""
    try:
        (chunk.id + chunk.text).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"chunk {chunk.id!r} is no valid Unicode text: {error}; remove the lone surrogate") from error
    return chunk.id, chunk.text


def _hash(corpus: StoredChunks, settings: Mapping[str, Any]) -> str:
    """Return a hash of corpus and settings."""
    digest = hashlib.sha256(to_json(settings, "the settings of the index").encode())
    for row in corpus.rows():
        digest.update(json.dumps(row).encode())
    return digest.hexdigest()


def _begin(database: Any, wanted: IndexManifest, uri: str | Path, *, overwrite: bool) -> IndexManifest | None:
    """Return the manifest of the build to go on with, or None when the wanted index is complete."""
    records = read_records(database)
    complete = in_state("complete", records)
    if records and not overwrite:
        found = IndexManifest.parse((complete or records)[0], uri)
        found.require_embedder(wanted.embedder_name, wanted.dimension, uri)
        if found.content != wanted.content:
            raise IndexMismatchError(
                f"the index at {uri} holds another corpus or was made with other settings "
                f"(fingerprint {found.fingerprint[:12]!r} of {found.num_chunks} chunks, "
                f"wanted {wanted.fingerprint[:12]!r} of {wanted.num_chunks}); {REMEDY}"
            )
        if complete:
            drop_unrecorded(database)
            return None
    for record in in_state("building", records):
        if record.get("format_version") == FORMAT_VERSION:
            begun = IndexManifest.parse(record, uri)
            if begun.content == wanted.content:
                return begun
    building = replace(wanted, table=new_chunk_table_name(database))
    # The table is named before it exists, so that no kill can leave one that nobody knows of.
    write_records(database, [*complete, asdict(building)])
    return building


def _require_rows(table: Any, corpus: StoredChunks, number: int, uri: str | Path) -> None:
    """Raise unless the table holds exactly the first `number` chunks, in their order."""
    wanted, stored = islice(enumerate(corpus.ids()), number), 0
    for batch in table.search().select(["position", "id"]).to_batches():
        rows = list(zip(batch["position"].to_pylist(), batch["id"].to_pylist(), strict=True))
        stored += len(rows)
        if rows != list(islice(wanted, len(rows))):
            stored = -1
            break
    if stored != number:
        raise IndexMismatchError(
            f"the {number} rows stored at {uri} are not the first chunks of this corpus in order: "
            f"the corpus has changed under the same fingerprint, or two builds ran at once; {REMEDY}"
        )


def _embed(embedder: Embedder, batch: Sequence[Chunk]) -> NDArray[np.float32]:
    """Return the unit vectors of the chunks' texts, `[n, d]`."""
    vectors = np.asarray(embedder.embed([chunk.text for chunk in batch]), dtype=np.float32)
    shape = (len(batch), embedder.dimension)
    # The tolerance lets half-precision vectors pass; NaN fails every comparison.
    if vectors.shape != shape or not (np.abs(np.linalg.norm(vectors, axis=1) - 1) < 0.01).all():
        raise ModelError(
            f"embedder {embedder.name!r} must return finite unit vectors of shape {shape}, got shape "
            f"{vectors.shape}; check the model, or normalise its vectors"
        )
    return vectors


def _complete(database: Any, table: Any, building: IndexManifest, corpus: StoredChunks, uri: str | Path) -> None:
    """Compact the rows, make the search structures, check the rows, and say `complete` last."""
    from lancedb.index import FTS, HnswSq

    # One fragment per batch is slow to read. Nobody else uses old versions; LanceDB warns about an age of 0.
    table.optimize(cleanup_older_than=timedelta(milliseconds=1))
    table.create_index("text", config=FTS())
    if len(corpus) >= MIN_CHUNKS_FOR_HNSW:
        num_graphs = -(-len(corpus) // _MAX_CHUNKS_PER_GRAPH)
        table.create_index("vector", config=HnswSq(distance_type="cosine", num_partitions=num_graphs))
    # Searching and reading rely on the rows' order, which compaction must have kept.
    _require_rows(table, corpus, len(corpus), uri)
    write_records(database, [asdict(replace(building, state="complete"))])
    drop_unrecorded(database)


def drop_unrecorded(database: Any) -> None:
    """Drop the chunks of replaced indexes and of abandoned builds."""
    recorded = {record.get("table") for record in read_records(database)}
    for name in chunk_table_names(database):
        if name not in recorded:
            database.drop_table(name)
