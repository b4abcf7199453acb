"""Writing an index, batch by batch, so that a build that is killed at any moment can go on.

A build and an update are the same: chunks that the table lacks are embedded and added, rows that are no longer wanted
are deleted, and the record of the complete index is written last. Until then readers see the version of the table that
the old record names. Every commit of LanceDB is atomic, so the batches of a killed run stay, and the next run finds
them by their content.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.errors import DataError, IndexMismatchError, InputError
from corag.index import nearest, store
from corag.index.states import encoded_states
from corag.index.store import (
    CHUNKS,
    REMEDY,
    IndexManifest,
    Records,
    accessing,
    connect,
    index_lock,
    metadata_json,
    open_table,
    read_records,
    to_json,
    to_rows,
    write_records,
)
from corag.models.vectors import vectors_by
from corag.types import Chunk, Embedder

MOST_CHANGED = 0.2
"""Share of the chunks of a large index that may change before its search structures are made anew."""
# Chunks whose vectors are known cost no time, so more of them are stored at once.
_MAX_BATCH = 4096
_DELETED_AT_A_TIME = 5_000
_READ_AT_A_TIME = 4096
_FOREVER = timedelta(days=36_500)


class ChunkSource(ABC):
    """What an index is made of: parts, such as files, whose content a key names.

    Attributes:
        fingerprint: Names content and settings; sources with the same one make the same index.
        settings: How the chunks are made, JSON values; may grow until `finish`.
        parts: Name of each part -> its key.
        num_chunks: Number of chunks, if it is known.
    """

    fingerprint: str
    settings: dict[str, Any]
    parts: Mapping[str, str]
    num_chunks: int | None = None

    @abstractmethod
    def is_update_of(self, settings: Mapping[str, Any]) -> bool:
        """Return whether this source brings an index with these settings up to date."""

    @abstractmethod
    def read(self, name: str) -> tuple[str, Iterable[Chunk]] | None:
        """Return the key of a part, which may have changed by now, and its chunks; None if it cannot be read."""

    @abstractmethod
    def finish(self, parts: Mapping[str, str]) -> None:
        """Get the keys of the parts in the index; raise `DataError` if there are none."""


@dataclass(frozen=True, slots=True)
class Written:
    """What writing an index took.

    Attributes:
        num_embedded: Chunks that were embedded.
        num_copied: Chunks that were there before, or whose vector was.
        before: Part -> key in the index that was there.
        after: Part -> key in the index now.
    """

    num_embedded: int = 0
    num_copied: int = 0
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)


class ListedChunks(ChunkSource):
    """Chunks that are given as they are, as one part.

    Raises:
        DataError: There are none, or they cannot be stored.
    """

    def __init__(self, chunks: Iterable[Chunk], settings: Mapping[str, Any]) -> None:
        self._chunks = list(chunks)
        self.settings = dict(settings)
        digest = hashlib.sha256(to_json(settings, "the settings of the index").encode())
        ids: set[str] = set()
        for chunk in self._chunks:
            if chunk.id in ids:
                raise DataError(f"chunk id {chunk.id!r} occurs twice; every chunk needs an id of its own")
            ids.add(chunk.id)
            digest.update(json.dumps([chunk.id, chunk.text, metadata_json(chunk)]).encode())
        self.fingerprint = digest.hexdigest()
        self.parts = {"": self.fingerprint}
        self.num_chunks = len(self._chunks)
        self.finish(self.parts)

    def is_update_of(self, settings: Mapping[str, Any]) -> bool:
        """Return False: an index of other chunks has to be replaced."""
        return False

    def read(self, name: str) -> tuple[str, Iterable[Chunk]]:
        """Return the chunks."""
        return self.fingerprint, self._chunks

    def finish(self, parts: Mapping[str, str]) -> None:
        """Raise `DataError` if there are no chunks."""
        if not self._chunks:
            raise DataError("there are no chunks to index; an index needs at least one: check the corpus")


def write_index(
    uri: str | Path,
    source: ChunkSource,
    embedder: Embedder,
    *,
    states: bool | None = None,
    batch_size: int = 256,
    progress: Callable[[int, int], None] | None = None,
    overwrite: bool = False,
) -> Written:
    """Embed and store the chunks of a source, bring an index of it up to date, or finish what was interrupted.

    See `ChunkIndex.build`. If another process writes at the place, this one waits.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    with index_lock(uri):
        with accessing(uri, "write"):
            database = connect(uri)
            records = _usable_records(database, uri, overwrite)
            old = records.complete
            with_states = old is not None and old.states if states is None else states
            wanted = IndexManifest(
                embedder.name, embedder.dimension, source.fingerprint, dict(source.settings), "building", with_states
            )
            if not overwrite and _is_complete(records, wanted, source, uri):
                return Written(before=records.files, after=records.files)
            table = _begin(database, records, wanted, overwrite)
            # After an interrupted update, rows of a part may be missing or be of another content.
            keys = records.files if old and old.version == table.version and old.states == with_states else {}
            rows = _Rows(table, {name for name, key in source.parts.items() if keys.get(name) == key})
        writer = _Writer(table, rows, embedder, with_states, batch_size, uri)
        parts = _read_parts(source, writer, keys, progress)
        source.finish(parts)
        if not writer.num_done and len(rows.spare) == len(rows.positions):
            raise DataError("there are no chunks to index; an index needs at least one: check the corpus")
        with accessing(uri, "write"):
            positions, num_changed = writer.delete_unwanted()
            manifest = replace(
                wanted,
                state="complete",
                settings=dict(source.settings),
                num_chunks=len(positions),
                num_changed=num_changed + (old.num_changed if old else 0),
            )
            _complete(database, table, manifest, parts, positions, uri)
    return Written(writer.num_embedded, len(positions) - writer.num_embedded, records.files, parts)


def _usable_records(database: Any, uri: str | Path, overwrite: bool) -> Records:
    """Return what is recorded; a build that stored nothing, such as of a folder without text, does not count."""
    try:
        records = read_records(database, uri, files=True)
    except IndexMismatchError:
        if not overwrite:
            raise
        return Records()
    table = open_table(database, CHUNKS)
    return records if records.complete or (table is not None and table.count_rows()) else Records()


def _is_complete(records: Records, wanted: IndexManifest, source: ChunkSource, uri: str | Path) -> bool:
    """Return whether the wanted index is there; `IndexMismatchError` if another one is."""
    there = records.complete or records.building
    if there is None:
        return False
    there.require_embedder(wanted.embedder_name, wanted.dimension, uri)
    if there.fingerprint == wanted.fingerprint:
        return records.complete is not None and there.states == wanted.states
    if not source.is_update_of(there.settings):
        settings = [
            f"{name} is {there.settings[name]!r} there and {value!r} here"
            for name, value in source.settings.items()
            if name in there.settings and name not in ("documents", "unreadable") and there.settings[name] != value
        ]
        prints = f"fingerprint {there.fingerprint[:12]!r} there and {wanted.fingerprint[:12]!r} here"
        raise IndexMismatchError(
            f"the index at {uri} holds another corpus or was made with other settings "
            f"({'; '.join(settings) or prints}); {REMEDY}"
        )
    return False


def _begin(database: Any, records: Records, wanted: IndexManifest, overwrite: bool) -> Any:
    """Return the table to write to, with the rows that may serve, and record the build."""

    def content(manifest: IndexManifest) -> tuple[str, int, str, bool]:
        return manifest.embedder_name, manifest.dimension, manifest.fingerprint, manifest.states

    table = open_table(database, CHUNKS)
    last = records.building or records.complete
    resumes = records.building is not None and content(records.building) == content(wanted)
    # An overwritten table keeps its old versions, among them the one that is read.
    if table is None or last is None or (overwrite and not resumes) or content(last)[:2] != content(wanted)[:2]:
        no_vectors = np.zeros((0, wanted.dimension), dtype=np.float32)
        schema = to_rows([], [], 0, no_vectors, []).schema
        table = database.create_table(CHUNKS, schema=schema, mode="create" if table is None else "overwrite")
    if not resumes:
        write_records(database, replace(records, building=wanted))
    return table


def _read_parts(
    source: ChunkSource, writer: _Writer, keys: Mapping[str, str], progress: Callable[[int, int], None] | None
) -> dict[str, str]:
    """Write the chunks of all parts that have changed; return the keys of the parts."""

    def report() -> None:
        if progress is not None and source.num_chunks is not None:
            progress(writer.num_done, source.num_chunks)

    report()
    parts: dict[str, str] = {}
    for name, key in source.parts.items():
        if keys.get(name) == key:
            parts[name] = key
        elif (content := source.read(name)) is not None:
            parts[name] = content[0]
            for chunk in content[1]:
                if writer.add(chunk, name):
                    report()
    if writer.flush():
        report()
    return parts


class _Rows:
    """The rows of a table by their positions; holds about 50 bytes of each in memory.

    Args:
        table: The table, as it is now.
        unchanged: Parts whose rows all stay.

    Attributes:
        positions: Position of each row, ascending.
        spare: Positions of the rows of other parts, which stay if their content is wanted.
    """

    def __init__(self, table: Any, unchanged: Set[str]) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self._table = table
        found = table.search().select(["position", "part"]).with_row_id(True).to_arrow()
        positions: NDArray[np.int64] = found["position"].to_numpy()
        # Merging small files may move rows.
        order = np.argsort(positions, kind="stable")
        self.positions = positions[order]
        self._ids = found["_rowid"].to_numpy()[order]
        stays = pc.is_in(found["part"], value_set=pa.array(sorted(unchanged), pa.string())).to_numpy()[order]
        self.spare = self.positions[~stays]
        self._contents, self._texts = self._codes()

    def position_of(self, chunk: Chunk, with_states: bool) -> int | None:
        """Return the position of the spare row with the content of a chunk."""
        return self._contents.find(_content_code(chunk.id, chunk.text, metadata_json(chunk), with_states))

    def knows(self, text: str) -> bool:
        """Return whether a row has this text, and so its vector."""
        return self._texts.find(_code(text)) is not None

    def known(self, texts: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return `vector`, `states_key` and `states` of those of the texts that rows have."""
        positions = {at for text in texts if (at := self._texts.find(_code(text))) is not None}
        rows = self._take(np.array(sorted(positions), np.int64), ["text", "vector", "states_key", "states"])
        # Different texts may have one code.
        return {row["text"]: row for row in rows.to_pylist()}

    def _take(self, positions: NDArray[np.int64], columns: Sequence[str]) -> Any:
        """Return the rows at positions, in ascending order, as an Arrow table."""
        ids = self._ids[np.searchsorted(self.positions, positions)]
        rows = self._table.take_row_ids(ids.tolist()).select(["position", *columns]).to_arrow()
        return rows.take(np.argsort(rows["position"].to_numpy(), kind="stable"))

    def _codes(self) -> tuple[_Lookup, _Lookup]:
        """Return the spare rows by content; and these, or all rows of a small table, by text."""
        small = len(self.positions) < nearest.MIN_CHUNKS_TO_PARTITION
        positions = self.positions if small else self.spare
        contents, texts = np.zeros(len(positions), np.uint64), np.zeros(len(positions), np.uint64)
        for start in range(0, len(positions), _READ_AT_A_TIME):
            rows = self._take(positions[start : start + _READ_AT_A_TIME], ["id", "text", "metadata", "states_key"])
            for index, row in enumerate(rows.to_pylist(), start):
                texts[index] = _code(row["text"])
                has_states = row["states_key"] is not None
                contents[index] = _content_code(row["id"], row["text"], row["metadata"], has_states)
        is_spare = np.isin(positions, self.spare)
        return _Lookup(contents[is_spare], self.spare), _Lookup(texts, positions)


class _Lookup:
    """Positions by code."""

    def __init__(self, codes: NDArray[np.uint64], positions: NDArray[np.int64]) -> None:
        order = np.argsort(codes, kind="stable")
        self._codes, self._positions = codes[order], positions[order]

    def find(self, code: int) -> int | None:
        index = int(np.searchsorted(self._codes, np.uint64(code)))
        return int(self._positions[index]) if index < len(self._codes) and self._codes[index] == code else None


def _content_code(name: str, text: str, metadata: str, with_states: bool) -> int:
    return _code(json.dumps([name, text, metadata, with_states]))


def _code(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


class _Writer:
    """Adds chunks to a table in batches, those aside that it holds already.

    Attributes:
        num_done: Chunks that are in the table.
        num_embedded: Chunks that were embedded.
    """

    def __init__(
        self, table: Any, rows: _Rows, embedder: Embedder, with_states: bool, batch_size: int, uri: str | Path
    ) -> None:
        self._table, self._rows, self._embedder, self._uri = table, rows, embedder, uri
        self._with_states, self._batch_size = with_states, batch_size
        self.num_done = self.num_embedded = self._num_added = 0
        self._first = self._next = int(rows.positions[-1]) + 1 if len(rows.positions) else 0
        self._kept: list[int] = []
        self._batch: list[tuple[Chunk, str]] = []
        self._num_missing = 0

    def add(self, chunk: Chunk, part: str) -> bool:
        """Take a chunk; return whether a batch was stored."""
        position = self._rows.position_of(chunk, self._with_states)
        if position is not None:
            self._kept.append(position)
            self.num_done += 1
            return False
        self._batch.append((chunk, part))
        self._num_missing += not self._rows.knows(chunk.text)
        full = self._num_missing == self._batch_size or len(self._batch) == max(self._batch_size, _MAX_BATCH)
        return full and self.flush()

    def flush(self) -> bool:
        """Store the chunks that were taken; return whether there were any."""
        if not self._batch:
            return False
        chunks = [chunk for chunk, _ in self._batch]
        with accessing(self._uri, "write"):
            known = self._rows.known([chunk.text for chunk in chunks])
        missing = [chunk.text for chunk in chunks if chunk.text not in known]
        fresh = iter(vectors_by(self._embedder, missing, unit=True))
        vectors = [known[chunk.text]["vector"] if chunk.text in known else next(fresh) for chunk in chunks]
        states = self._states(chunks, known)
        with accessing(self._uri, "write"):
            rows = to_rows(chunks, [part for _, part in self._batch], self._next, np.array(vectors, np.float32), states)
            # Several writers would split the batch and could lose its order.
            self._table.add(rows, write_parallelism=1)
        self._next += len(chunks)
        self.num_done += len(chunks)
        self.num_embedded += len(missing)
        self._batch, self._num_missing = [], 0
        return True

    def delete_unwanted(self) -> tuple[NDArray[np.int64], int]:
        """Delete the rows that no chunk wants; return the positions of those that stay, and how many rows changed."""
        gone = np.setdiff1d(self._rows.spare, np.array(self._kept, np.int64))
        for start in range(0, len(gone), _DELETED_AT_A_TIME):
            some = ", ".join(map(str, gone[start : start + _DELETED_AT_A_TIME].tolist()))
            self._table.delete(f"position IN ({some})")
        new = np.arange(self._first, self._next)
        return np.concatenate([np.setdiff1d(self._rows.positions, gone), new]), len(gone) + len(new)

    def _states(
        self, chunks: Sequence[Chunk], known: Mapping[str, Mapping[str, Any]]
    ) -> list[tuple[bytes | None, bytes | None]]:
        """Return the token states of chunks, or None for each where none are wanted."""
        if not self._with_states:
            return [(None, None)] * len(chunks)
        states = {text: (row["states_key"], row["states"]) for text, row in known.items() if row["states_key"]}
        new = list(dict.fromkeys(chunk.text for chunk in chunks if chunk.text not in states))
        states |= zip(new, encoded_states(new), strict=True)
        return [states[chunk.text] for chunk in chunks]


def _complete(
    database: Any,
    table: Any,
    manifest: IndexManifest,
    parts: Mapping[str, str],
    positions: NDArray[np.int64],
    uri: str | Path,
) -> None:
    """Make the search structures, check the rows, and record the index as complete; then merge small files."""

    def record(num_changed: int) -> None:
        complete = replace(manifest, version=table.version, num_changed=num_changed)
        write_records(database, Records(complete, None, parts))

    # One file for each batch is slow to read. The version that is read must not go yet.
    table.optimize(cleanup_older_than=_FOREVER)
    num_changed = _make_search_structures(table, manifest)
    stored = table.search().select(["position"]).to_arrow()["position"].to_numpy()
    if not np.array_equal(np.sort(stored), positions):
        raise IndexMismatchError(f"the rows stored at {uri} are not those of this corpus; did two builds run? {REMEDY}")
    record(num_changed)
    version = table.version
    # It also takes new rows into the search structures. The version recorded is seconds old, so it stays.
    table.optimize(cleanup_older_than=store.OLD_VERSIONS_KEPT)
    if table.version != version:
        record(num_changed)


def _make_search_structures(table: Any, manifest: IndexManifest) -> int:
    """Make a table's full-text index, and partitions of its vectors if it is large; return the rows changed since.

    Those of a large table of which little has changed stay, because new rows can join them.
    """
    from lancedb.index import FTS

    made = {column for index in table.list_indices() for column in index.columns}
    large = manifest.num_chunks >= nearest.MIN_CHUNKS_TO_PARTITION
    if large and made >= {"text", "vector"} and manifest.num_changed <= MOST_CHANGED * manifest.num_chunks:
        return manifest.num_changed
    table.create_index("text", config=FTS())
    nearest.make_partitions(table, manifest.num_chunks, manifest.dimension)
    return 0
