"""Writing an index, batch by batch, so that a build that is killed at any moment can go on.

Every LanceDB commit is atomic, so whole batches stay behind. The record that says `complete` is written last. An update
writes a table of its own beside the one in use and copies the vectors of texts that are already embedded; so readers
see the old index until the new one is whole, and an updated index is the same as one that is built anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.errors import DataError, IndexMismatchError, InputError
from corag.index.lock import index_lock
from corag.index.reuse import KnownVectors, Previous
from corag.index.store import (
    FORMAT_VERSION,
    REMEDY,
    IndexManifest,
    accessing,
    chunk_table_names,
    connect,
    in_state,
    new_chunk_table_name,
    open_table,
    read_records,
    to_json,
    to_rows,
    write_records,
)
from corag.index.stored import StoredChunks
from corag.models.vectors import vectors_by
from corag.types import Chunk, Embedder

MIN_CHUNKS_FOR_HNSW = 10_000
"""From this many chunks on a search walks an HNSW graph; below, it compares every vector, which is exact.

Comparing takes 1 ms of CPU time a query for each 1,000 vectors of 384 numbers. A graph takes 1 to 1.5 ms of CPU time a
chunk to build, a small part of what embedding takes, and every update builds it anew.
"""
MIN_CHUNKS_FOR_QUANTISED = 200_000
"""From this many chunks on the graph holds bytes instead of numbers, a quarter of the memory.

Its candidates have to be read and ranked again. With 100,000 vectors of 384 numbers, the best 100 take 25 ms of CPU
time by bytes and 6 ms by numbers, with a recall of 1.000 either way.
"""
# A graph is built in memory; a million vectors of 1024 numbers, quantised to bytes, take 1 GB.
_MAX_CHUNKS_PER_GRAPH = 1_000_000
# Chunks whose vectors are known cost no time, so more of them are stored at once.
_MAX_BATCH = 4096


@dataclass(slots=True)
class IndexWork:
    """What is to be in an index.

    Attributes:
        chunks: Returns the chunks, each id once; given the index that is brought up to date, if there is one.
        fingerprint: Names content and settings; works with the same one make the same index.
        settings: How the chunks are made, JSON values. They may grow until the last chunk was taken.
        files: File -> what is known of it; kept for the next update. It may grow likewise.
        updates: Tells from the settings of an index whether this work brings it up to date.
        num_chunks: How many they are, if that is known.
    """

    chunks: Callable[[Previous | None], Iterable[Chunk]]
    fingerprint: str
    settings: dict[str, Any]
    files: dict[str, Any] = field(default_factory=dict)
    updates: Callable[[Mapping[str, Any]], bool] = lambda _: False
    num_chunks: int | None = None


def work_of(chunks: StoredChunks, settings: Mapping[str, Any]) -> IndexWork:
    """Return the work of storing chunks."""
    return IndexWork(lambda _: chunks, _hash(chunks, settings), dict(settings), num_chunks=len(chunks))


@dataclass(frozen=True, slots=True)
class Written:
    """What writing an index took.

    Attributes:
        num_embedded: Chunks that were embedded.
        num_copied: Chunks whose vector an earlier table held.
    """

    num_embedded: int = 0
    num_copied: int = 0


def write_index(
    uri: str | Path,
    work: IndexWork,
    embedder: Embedder,
    *,
    batch_size: int = 256,
    progress: Callable[[int, int], None] | None = None,
    overwrite: bool = False,
) -> Written:
    """Embed the chunks and store them, bring an index up to date, or finish what was interrupted.

    See `ChunkIndex.build`. Where another process writes at the place, this one waits.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    with index_lock(uri):
        with accessing(uri, "write"):
            database = connect(uri)
            building, usable = _begin(database, work, embedder, uri, overwrite=overwrite)
            if building is None:
                return Written()
            table = open_table(database, building.table)
            # An empty table is false.
            if table is None:
                no_vectors = np.zeros((0, building.dimension), dtype=np.float32)
                table = database.create_table(building.table, schema=to_rows([], 0, no_vectors).schema)
            previous = [Previous(database, record) for record in usable]
            known = KnownVectors([one.table for one in previous if one.table is not None])
        complete = next((one for one in previous if one.complete), None)
        ids = hashlib.sha256()
        written = _store(table, work.chunks(complete), work, embedder, known, uri, batch_size, progress, ids)
        with accessing(uri, "write"):
            if not (num_chunks := table.count_rows()):
                raise DataError("there are no chunks to index; an index needs at least one: check the corpus")
            manifest = replace(building, state="complete", num_chunks=num_chunks, settings=dict(work.settings))
            _complete(database, table, manifest, work.files, ids, uri)
    return written


def _store(
    table: Any,
    source: Iterable[Chunk],
    work: IndexWork,
    embedder: Embedder,
    known: KnownVectors,
    uri: str | Path,
    batch_size: int,
    progress: Callable[[int, int], None] | None,
    ids: Any,
) -> Written:
    """Store the chunks that are not stored yet; all ids go into the hash `ids`."""
    chunks = iter(source)
    with accessing(uri, "write"):
        num_stored = table.count_rows()
        _add_ids(ids, (chunk.id for chunk in islice(chunks, num_stored)))
        _require_rows(table, ids, num_stored, uri)
    num_embedded = num_copied = 0

    def report() -> None:
        if progress is not None and work.num_chunks is not None:
            progress(num_stored, work.num_chunks)

    report()
    for batch, vectors in _batches(chunks, known, batch_size):
        missing = [place for place, vector in enumerate(vectors) if vector is None]
        texts = [batch[place].text for place in missing]
        fresh = dict(zip(missing, vectors_by(embedder, texts, unit=True), strict=True))
        whole = np.array([fresh[i] if vector is None else vector for i, vector in enumerate(vectors)], np.float32)
        with accessing(uri, "write"):
            # Several writers would split the batch and could lose its order.
            rows = to_rows(batch, num_stored, whole)
            # A build that another version began may lack a column.
            table.add(rows.select(table.schema.names), write_parallelism=1)
        _add_ids(ids, (chunk.id for chunk in batch))
        num_stored += len(batch)
        num_embedded += len(missing)
        num_copied += len(batch) - len(missing)
        report()
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


def _hash(corpus: StoredChunks, settings: Mapping[str, Any]) -> str:
    """Return a hash of corpus and settings."""
    digest = hashlib.sha256(to_json(settings, "the settings of the index").encode())
    for row in corpus.rows():
        digest.update(json.dumps(row).encode())
    return digest.hexdigest()


def _begin(
    database: Any, work: IndexWork, embedder: Embedder, uri: str | Path, *, overwrite: bool
) -> tuple[IndexManifest | None, list[dict[str, Any]]]:
    """Return the build to go on with, or None when the wanted index is complete.

    With it come the records of earlier builds whose vectors it may use.
    """
    wanted = embedder.name, embedder.dimension, work.fingerprint
    records = read_records(database, files=True)
    kept = in_state("complete", records)
    if not kept and not overwrite:
        # A build that stored nothing, such as of a folder whose files hold no text, is none.
        records = [record for record in records if _has_rows(database, record)]
    usable: list[dict[str, Any]] = []
    if records and not overwrite:
        found = IndexManifest.parse((kept or records)[0], uri)
        found.require_embedder(embedder.name, embedder.dimension, uri)
        if found.content == wanted and kept:
            drop_unrecorded(database)
            return None, []
        if found.content != wanted and not work.updates(found.settings):
            raise IndexMismatchError(_mismatch(found, work, uri))
        # An abandoned build keeps its record until the index is complete: its vectors are worth having.
        kept = [record for record in records if record.get("format_version") == FORMAT_VERSION]
        usable = [record for record in kept if (record["embedder_name"], record["dimension"]) == wanted[:2]]
    for record in in_state("building", records):
        if record.get("format_version") == FORMAT_VERSION:
            begun = IndexManifest.parse(record, uri)
            if begun.content == wanted:
                return begun, [one for one in usable if one["table"] != begun.table]
    begun = IndexManifest(
        format_version=FORMAT_VERSION,
        embedder_name=embedder.name,
        dimension=embedder.dimension,
        fingerprint=work.fingerprint,
        num_chunks=work.num_chunks or 0,
        settings=dict(work.settings),
        state="building",
        table=new_chunk_table_name(database),
    )
    # The table is named before it exists, so that no kill can leave one that nobody knows of.
    write_records(database, [*kept, asdict(begun)])
    return begun, usable


def _has_rows(database: Any, record: Mapping[str, Any]) -> bool:
    table = open_table(database, str(record.get("table")))
    return table is not None and table.count_rows() > 0


def _mismatch(found: IndexManifest, work: IndexWork, uri: str | Path) -> str:
    """Say how an index differs from what is wanted there."""
    settings = [
        f"{name} is {found.settings[name]!r} there and {value!r} here"
        for name, value in work.settings.items()
        if name in found.settings and name not in ("documents", "unreadable") and found.settings[name] != value
    ]
    prints = f"fingerprint {found.fingerprint[:12]!r} there and {work.fingerprint[:12]!r} here"
    return (
        f"the index at {uri} holds another corpus or was made with other settings "
        f"({'; '.join(settings) or prints}); {REMEDY}"
    )


def _add_ids(digest: Any, ids: Iterable[str]) -> int:
    """Put ids into a hash, in their order; return their number."""
    number = 0
    for one in ids:
        digest.update(json.dumps(one).encode())
        number += 1
    return number


def _require_rows(table: Any, ids: Any, number: int, uri: str | Path) -> None:
    """Raise unless the table holds exactly `number` rows at their positions, whose ids have the hash `ids`."""
    stored, found = 0, hashlib.sha256()
    for batch in table.search().select(["position", "id"]).to_batches():
        in_place = batch["position"].to_pylist() == list(range(stored, stored + len(batch)))
        stored += _add_ids(found, batch["id"].to_pylist()) if in_place else number + 1
    if stored != number or found.digest() != ids.digest():
        raise IndexMismatchError(
            f"the {number} rows stored at {uri} are not the first chunks of this corpus in order: "
            f"the corpus has changed under the same fingerprint, or two builds ran at once; {REMEDY}"
        )


def _complete(
    database: Any, table: Any, manifest: IndexManifest, files: Mapping[str, Any], ids: Any, uri: str | Path
) -> None:
    """Compact the rows, make the search structures, check the rows, and say `complete` last."""
    from lancedb.index import FTS, HnswFlat, HnswSq

    # One fragment per batch is slow to read. Nobody else uses old versions; LanceDB warns about an age of 0.
    table.optimize(cleanup_older_than=timedelta(milliseconds=1))
    table.create_index("text", config=FTS())
    if manifest.num_chunks >= MIN_CHUNKS_FOR_HNSW:
        num_graphs = -(-manifest.num_chunks // _MAX_CHUNKS_PER_GRAPH)
        graph = HnswSq if manifest.num_chunks >= MIN_CHUNKS_FOR_QUANTISED else HnswFlat
        table.create_index("vector", config=graph(distance_type="cosine", num_partitions=num_graphs))
    # Searching and reading rely on the rows' order, which compaction must have kept.
    _require_rows(table, ids, manifest.num_chunks, uri)
    write_records(database, [asdict(manifest) | {"files": files}])
    drop_unrecorded(database)


def drop_unrecorded(database: Any) -> None:
    """Drop the chunks of replaced indexes and of abandoned builds."""
    recorded = {record.get("table") for record in read_records(database)}
    for name in chunk_table_names(database):
        if name not in recorded:
            database.drop_table(name)
