"""Small changes of a large index, in place, so that they cost what changes and not what stays.

New rows are added and those that are gone deleted in the table in use. Its record names the version that is read, so
readers see the old state until the new one is recorded; who holds the old one open can read it for an hour more. A
change that is cut off leaves rows behind that no reader sees, and the next one finds them again.

New chunks stand behind the others, and LanceDB may move some when it merges small files. When a fifth of the chunks has
changed, the index is written anew, which compacts it and restores the order. The partitions of its vectors are
trained again after ten changes, too.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.errors import IndexMismatchError
from corag.index import nearest, store
from corag.index.reuse import KnownVectors, Previous, Rows
from corag.index.store import (
    PINNED_FORMAT_VERSION,
    READABLE_VERSIONS,
    REMEDY,
    IndexManifest,
    accessing,
    drop_old_records,
    in_state,
    open_table,
    read_records,
    write_records,
)
from corag.index.stored import StoredChunks
from corag.index.work import IndexWork, Written, add_chunks
from corag.types import Chunk, Embedder

MOST_CHANGED = 0.2
"""Of the chunks: when more has changed in place, the index is written anew."""
# LanceDB keeps the vectors of each change as a part of its own of their index, and a query looks into all of them.
_MOST_PARTS = 10
_DELETED_AT_A_TIME = 5_000
_CODE_BYTES = 16


def change_in_place(
    database: Any,
    work: IndexWork,
    embedder: Embedder,
    uri: str | Path,
    batch_size: int,
    progress: Callable[[int, int], None] | None,
) -> Written | None:
    """Bring a large index up to date if little has changed; None if it has to be written anew, or is complete."""
    with accessing(uri, "write"):
        records = read_records(database, files=True)
        found = _changeable(records, work, embedder, uri)
        if found is None:
            return None
        table: Any = open_table(database, found.table)
        if found.fingerprint == work.fingerprint:
            _restore(database, table, found, in_state("complete", records)[0]["files"])
            return None
        rows = Rows(table)
        previous = Previous(database, in_state("complete", records)[0], in_place=True)
    plan = _Plan(work.chunks(previous), rows)
    changed = found.num_changed + len(plan.gone) + plan.num_new
    if plan.lost or changed > MOST_CHANGED * len(plan.positions):
        return None
    with accessing(uri, "write"):
        if found.version is None:
            pinned = replace(found, format_version=PINNED_FORMAT_VERSION, version=table.version)
            write_records(database, [pinned.record() | {"files": dict(previous.files)}])
        known = KnownVectors([rows], plan.gone)
    num_done = len(plan.positions) - plan.num_new

    def report(batch: list[Chunk]) -> None:
        nonlocal num_done
        num_done += len(batch)
        if progress is not None and work.num_chunks is not None:
            progress(num_done, work.num_chunks)

    report([])
    written = add_chunks(table, plan.new(), plan.first_new, embedder, known, uri, batch_size, report)
    with accessing(uri, "write"):
        for start in range(0, len(plan.gone), _DELETED_AT_A_TIME):
            some = ", ".join(map(str, plan.gone[start : start + _DELETED_AT_A_TIME].tolist()))
            table.delete(f"position IN ({some})")
        if not np.array_equal(Rows(table).positions, np.sort(plan.positions)):
            raise IndexMismatchError(f"the rows stored at {uri} are not those of this corpus; {REMEDY}")
        manifest = replace(
            found,
            format_version=PINNED_FORMAT_VERSION,
            fingerprint=work.fingerprint,
            num_chunks=len(plan.positions),
            settings=dict(work.settings),
            version=table.version,
            num_changed=changed,
        )
        files = plan.placed(work.files)
        # The rows are whole; what follows makes searching them faster.
        write_records(database, [manifest.record() | {"files": files}])
        _tidy(database, table, manifest, files)
    return Written(written.num_embedded, len(plan.positions) - written.num_embedded)


def _changeable(
    records: list[dict[str, Any]], work: IndexWork, embedder: Embedder, uri: str | Path
) -> IndexManifest | None:
    """Return the complete index that the work may change in place."""
    complete = [one for one in in_state("complete", records) if one.get("format_version") in READABLE_VERSIONS]
    if not complete or complete[0]["num_chunks"] < nearest.MIN_CHUNKS_TO_PARTITION:
        return None
    found = IndexManifest.parse(complete[0], uri)
    begun = {one.get("fingerprint") for one in in_state("building", records)}
    if found.content[:2] != (embedder.name, embedder.dimension) or work.fingerprint in begun:
        return None
    return found if found.fingerprint == work.fingerprint or work.updates(found.settings) else None


def _restore(database: Any, table: Any, manifest: IndexManifest, files: Mapping[str, Any]) -> None:
    """Take back what an interrupted change left behind the version recorded, and do what it left undone."""
    if manifest.version is None or (manifest.version == table.version and not _unindexed(table)):
        return
    table.checkout(manifest.version)
    table.restore()
    # A version of this moment, which `_tidy` does not drop.
    manifest = replace(manifest, version=table.version)
    write_records(database, [manifest.record() | {"files": dict(files)}])
    _tidy(database, table, manifest, files)


def _tidy(database: Any, table: Any, manifest: IndexManifest, files: Mapping[str, Any]) -> None:
    """Take new rows into the search structures, merge small files, and drop versions that nobody reads any more."""
    if not _unindexed(table):
        return
    # The version recorded is seconds old, so it stays.
    table.optimize(cleanup_older_than=store.OLD_VERSIONS_KEPT)
    parts = [table.index_stats(one.name).num_indices or 0 for one in table.list_indices() if one.columns == ["vector"]]
    if max(parts, default=0) > _MOST_PARTS:
        nearest.make_partitions(table, manifest.num_chunks, manifest.dimension)
    write_records(database, [replace(manifest, version=table.version).record() | {"files": dict(files)}])
    drop_old_records(database)


def _unindexed(table: Any) -> bool:
    return any(table.index_stats(index.name).num_unindexed_rows for index in table.list_indices())


class _Plan:
    """What has to be added to rows and deleted from them, so that they hold some chunks and no others.

    Args:
        chunks: The chunks; ranges are positions of rows that hold some of them.
        rows: The rows.

    Attributes:
        positions: Where each chunk lies, or will lie, in the order of the chunks.
        gone: Positions of rows to delete.
        num_new: Chunks to add.
        first_new: Position of the first of them.
        lost: A row that should be there is not.
    """

    def __init__(self, chunks: Iterable[Chunk | range], rows: Rows) -> None:
        order = array("q")
        self._given = chunks if isinstance(chunks, StoredChunks) else StoredChunks(_noted(chunks, order), least=0)
        self.positions = np.array(order, np.int64) if order else np.full(len(self._given), -1)
        given = np.flatnonzero(self.positions < 0)
        kept = self.positions[self.positions >= 0]
        spare = np.setdiff1d(rows.positions, kept, assume_unique=True)
        self.lost = len(spare) + len(kept) != len(rows)
        found = _found([_code(*row) for row in self._given.rows()], rows, spare)
        self._new = found < 0
        self.num_new = int(self._new.sum())
        self.first_new = int(rows.positions[-1]) + 1
        found[self._new] = np.arange(self.first_new, self.first_new + self.num_new)
        self.positions[given] = found
        self.gone = np.setdiff1d(spare, found, assume_unique=True)

    def new(self) -> Iterator[Chunk]:
        """Yield the chunks to add."""
        return (chunk for chunk, new in zip(self._given, self._new.tolist(), strict=True) if new)

    def placed(self, files: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is known of files, with the positions of their chunks."""
        return {
            name: [key, *_runs(self.positions[first : first + number])] for name, (key, first, number) in files.items()
        }


def _noted(chunks: Iterable[Chunk | range], order: array[int]) -> Iterator[Chunk]:
    """Yield the chunks that are no ranges; note the positions of all, -1 for those."""
    for one in chunks:
        if isinstance(one, range):
            order.extend(one)
        else:
            order.append(-1)
            yield one


def _found(codes: list[bytes], rows: Rows, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each code the position, among some, of the row that has it, or -1."""
    stored = np.empty(len(positions), dtype=f"S{_CODE_BYTES}")
    start = 0
    for batch in rows.batches(positions, ["id", "text", "metadata"]):
        columns = (batch[name].to_pylist() for name in ("id", "text", "metadata"))
        some = [_code(*row) for row in zip(*columns, strict=True)]
        stored[start : start + len(some)] = some
        start += len(some)
    if not (len(stored) and codes):
        return np.full(len(codes), -1)
    order = np.argsort(stored, kind="stable")
    wanted = np.array(codes, dtype=stored.dtype)
    places = np.minimum(np.searchsorted(stored[order], wanted), len(stored) - 1)
    found: NDArray[np.int64] = np.where(stored[order][places] == wanted, positions[order][places], -1)
    return found


def _code(*row: str) -> bytes:
    return hashlib.blake2b(json.dumps(row).encode(), digest_size=_CODE_BYTES).digest()


def _runs(positions: NDArray[np.int64]) -> list[int]:
    """Return the first position and the number of each run of positions one after the other."""
    cuts = np.flatnonzero(np.diff(positions) != 1) + 1
    return [number for run in np.split(positions, cuts) if len(run) for number in (int(run[0]), len(run))]
