"""Writing an index, batch by batch, so that a build that is killed at any moment can go on.

Every LanceDB commit is atomic, so whole batches stay behind. The record that says `complete` is written last. An update
writes a table of its own beside the one in use and copies the vectors of texts that are already embedded; so readers
see the old index until the new one is whole, and an updated index is the same as one that is built anew. A large index
of which little has changed is changed in place instead; see `corag.index.change`.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from corag.errors import DataError, IndexMismatchError, InputError
from corag.index.change import change_in_place
from corag.index.lock import index_lock
from corag.index.nearest import make_partitions
from corag.index.reuse import KnownVectors, Previous
from corag.index.store import (
    FORMAT_VERSION,
    READABLE_VERSIONS,
    REMEDY,
    IndexManifest,
    accessing,
    chunk_table_names,
    connect,
    drop_old_records,
    in_state,
    new_chunk_table_name,
    open_table,
    read_records,
    to_json,
    to_rows,
    write_records,
)
from corag.index.stored import StoredChunks
from corag.index.work import IndexWork, Written, add_chunks
from corag.types import Chunk, Embedder

# `M_TRIM_THRESHOLD` and `M_MMAP_THRESHOLD` of malloc.h.
_TRIM, _MMAP = -1, -3
_LARGE = 64 * 1024


def work_of(chunks: StoredChunks, settings: Mapping[str, Any]) -> IndexWork:
    """Return the work of storing chunks."""
    return IndexWork(lambda _: chunks, _hash(chunks, settings), dict(settings), num_chunks=len(chunks))


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
    _return_large_blocks()
    with index_lock(uri):
        with accessing(uri, "write"):
            database = connect(uri)
        if not overwrite:
            written = change_in_place(database, work, embedder, uri, batch_size, progress)
            if written is not None:
                drop_unrecorded(database)
                return written
        with accessing(uri, "write"):
            building, usable = _begin(database, work, embedder, uri, overwrite=overwrite)
            if building is None:
                return Written()
            table = open_table(database, building.table)
            # An empty table is false.
            if table is None:
                no_vectors = np.zeros((0, building.dimension), dtype=np.float32)
                table = database.create_table(building.table, schema=to_rows([], 0, no_vectors).schema)
            previous = [Previous(database, record) for record in usable]
            known = KnownVectors([one.rows for one in previous if one.table is not None])
        complete = next((one for one in previous if one.complete), None)
        ids = hashlib.sha256()
        # Ranges come only where chunks may stay in place.
        chunks = cast("Iterable[Chunk]", work.chunks(complete))
        written = _store(table, chunks, work, embedder, known, uri, batch_size, progress, ids)
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

    def report(batch: list[Chunk]) -> None:
        nonlocal num_stored
        _add_ids(ids, (chunk.id for chunk in batch))
        num_stored += len(batch)
        if progress is not None and work.num_chunks is not None:
            progress(num_stored, work.num_chunks)

    report([])
    return add_chunks(table, chunks, num_stored, embedder, known, uri, batch_size, report)


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
        kept = [record for record in records if record.get("format_version") in READABLE_VERSIONS]
        usable = [record for record in kept if (record["embedder_name"], record["dimension"]) == wanted[:2]]
    for record in in_state("building", records):
        if record.get("format_version") in READABLE_VERSIONS:
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
    write_records(database, [*kept, begun.record()])
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
    from lancedb.index import FTS

    # One fragment per batch is slow to read. Nobody else uses old versions; LanceDB warns about an age of 0.
    table.optimize(cleanup_older_than=timedelta(milliseconds=1))
    table.create_index("text", config=FTS())
    make_partitions(table, manifest.num_chunks, manifest.dimension)
    # Searching and reading rely on the rows' order, which compaction must have kept.
    _require_rows(table, ids, manifest.num_chunks, uri)
    write_records(database, [manifest.record() | {"files": files}])
    drop_unrecorded(database)
    drop_old_records(database)


def drop_unrecorded(database: Any) -> None:
    """Drop the chunks of replaced indexes and of abandoned builds."""
    recorded = {record.get("table") for record in read_records(database)}
    for name in chunk_table_names(database):
        if name not in recorded:
            database.drop_table(name)


@cache
def _return_large_blocks() -> None:
    """Have the C library give large blocks back to the system as soon as they are free; only glibc is asked to.

    It raises its limit for them to 32 MB by itself, and then keeps what LanceDB's threads freed: after the search
    structures of 100,000 chunks 400 MB, of which 14 with this. That takes no measurable time.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "gnu_get_libc_version"):
        library.mallopt(_MMAP, _LARGE)
        library.mallopt(_TRIM, 2 * _LARGE)
