"""Writing an index, batch by batch, so that a build that is killed at any moment can resume.

A build and an update are the same: chunks that the table lacks are embedded and merged into it by their ids, rows that
are no longer wanted are deleted, and the record of the complete index is written last. Until then readers see the
version of the table that the old record names. The next run finds the batches of a killed one in the table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.checks import check_count
from corag.errors import CoragError, DataError, IndexMismatchError, InputError
from corag.index import store
from corag.index.store import IndexManifest, Row, accessing, connect, open_table
from corag.index.where import quoted
from corag.models.embedders import vectors_by
from corag.text.words import unspaced
from corag.types import Chunk, Embedder

MIN_CHUNKS_TO_PARTITION = 10_000
"""From this many chunks on an index has partitions; below, a search compares every vector, which is exact.

Comparing takes up to 1 ms of CPU time a query for each 1,000 vectors of 384 numbers.
"""
CHUNKS_PER_PARTITION = 2_000
MOST_CHANGED = 0.2
"""Share of the chunks of a large index that may change before its search structures are rebuilt."""

# K-means samples 256 vectors a partition: 400 MB for vectors of 384 numbers.
_MAX_PARTITIONS = 1_000
# Bits for each number of a vector. Recall@20 over 100,000 chunks with twice as many ranked again: 1 bit .72, 4 .999.
_BITS = 4
# RaBitQ needs whole bytes. Other vectors, which no common embedder makes, are always compared one by one.
_NUMBERS_PER_BYTE = 8
# The most rows that are stored at a time if their vectors are known.
_MAX_BATCH = 4096
# Characters of a word by which texts are found; a SHA-512 has 128.
_LONGEST_WORD = 256
_FOREVER = timedelta(days=36_500)
# Key in the metadata of the table's schema, by which the vectors of an interrupted build are known.
_EMBEDDER = b"embedder"
_NO_CHUNKS = "there are no chunks to index; an index needs at least one: check the corpus"


@dataclass(frozen=True)
class ChunkSource:
    """What an index is made of: parts, such as files.

    Attributes:
        parts: Name of each part -> hash of its content.
        read: Returns the chunks of a part; None if it is unreadable. A part that changes between its hash and this is
            read again in the next update.
        fingerprint: Names content and settings; sources with the same one make the same index.
        settings: How the chunks are made, JSON values. An index is updated if it agrees in all but `skipped`, which
            `read` may add to; without any, an index of other content is replaced only on request.
    """

    parts: Mapping[str, str]
    read: Callable[[str], Iterable[Chunk] | None]
    fingerprint: str
    settings: Mapping[str, Any] = field(default_factory=dict)


def listed(chunks: Iterable[Chunk]) -> ChunkSource:
    """Return the source of chunks that are given as they are, as one part.

    Raises:
        DataError: There are none, two have the same id, or one cannot be stored.
    """
    given: dict[str, Chunk] = {}
    digest = hashlib.sha256()
    for number, chunk in enumerate(chunks):
        if not isinstance(chunk, Chunk):
            raise InputError(f"chunks[{number}] is a {type(chunk).__name__}; give Chunk(id, text) objects")
        if chunk.id in given:
            raise DataError(f"chunk id {chunk.id!r} occurs twice; every chunk needs an id of its own")
        given[chunk.id] = chunk
        digest.update(json.dumps([chunk.id, chunk.text, store.metadata_json(chunk)]).encode())
    if not given:
        raise DataError(_NO_CHUNKS)
    fingerprint = digest.hexdigest()
    return ChunkSource({"": fingerprint}, lambda _: given.values(), fingerprint)


class Written(NamedTuple):
    """The result of writing an index.

    Attributes:
        num_embedded: Chunks that were embedded.
        num_copied: Chunks that were there before, or whose vector was.
        before: Part -> hash in the index that was there.
        after: Part -> hash in the index now.
    """

    num_embedded: int
    num_copied: int
    before: Mapping[str, str]
    after: Mapping[str, str]


def write_index(
    uri: str | Path,
    source: ChunkSource,
    embedder: Embedder,
    *,
    batch_size: int = 256,
    overwrite: bool = False,
    reread: bool = False,
) -> Written:
    """Embed and store the chunks of a source, update an index of it, or finish a build; see `ChunkIndex.build`.

    With `reread`, unchanged parts are read again, too; texts that the index holds are not embedded again.
    """
    check_count("batch_size", batch_size, "typical: 256")
    with store.index_lock(uri):
        with accessing(uri, "write"):
            database = connect(uri)
            old, known = _usable_manifest(database, uri, overwrite)
            wanted = IndexManifest(embedder.name, embedder.dimension, source.fingerprint, source.settings)
            if old is not None:
                names = ("fingerprint", "embedder_name", "dimension")
                if not reread and all(getattr(old, name) == getattr(wanted, name) for name in names):
                    return Written(0, 0, known, known)
                if not overwrite:
                    _require_same_source(old, wanted, uri)
            table = _table_to_write(database, wanted)
            # After an interrupted update, rows of a part may be missing or be of another content.
            as_recorded = old is not None and old.version == table.version and not reread
            unchanged = {name for name, key in source.parts.items() if as_recorded and known.get(name) == key}
            # Rows are taken from the version of now, in which their ids stay the same.
            stored = open_table(connect(uri), store.CHUNKS, table.version)
            writer = _Writer(table, stored, unchanged, embedder, batch_size, uri)
        parts: dict[str, str] = {}
        for name, key in source.parts.items():
            if name in unchanged:
                parts[name] = key
            elif (chunks := source.read(name)) is not None:
                parts[name] = key
                for position, chunk in enumerate(chunks):
                    writer.add(Row(chunk, name, position))
        writer.flush()
        if not writer.wanted:
            raise DataError(_NO_CHUNKS)
        with accessing(uri, "write"):
            writer.delete_unwanted()
            num_changed = writer.num_changed + (old.num_changed if old else 0)
            manifest = replace(wanted, num_chunks=len(writer.wanted), num_changed=num_changed)
            _complete(database, table, manifest, parts, writer.wanted, uri)
    return Written(writer.num_embedded, len(writer.wanted) - writer.num_embedded, known, parts)


def _usable_manifest(database: Any, uri: str | Path, overwrite: bool) -> tuple[IndexManifest | None, dict[str, str]]:
    """Return what a complete index says about itself, and its parts.

    What was stored after a torn file is undone. With `overwrite`, an index that cannot be read is deleted: it cannot be
    replaced by a new version either.
    """
    try:
        with accessing(uri, "write"):
            if (table := open_table(connect(uri), store.CHUNKS)) is not None:
                # A file that was cut off has lost its footer, without which no column of it can be read.
                store.all_rows(table, ["position"])
            return store.read_records(uri)
    except (CoragError, TypeError):
        with suppress(CoragError, TypeError), accessing(uri, "write"):
            if _undo_torn(database, uri):
                return store.read_records(uri)
        if not overwrite:
            raise
        for name in (store.MANIFEST, store.CHUNKS):
            database.drop_table(name, ignore_missing=True)
        return None, {}


def _undo_torn(database: Any, uri: str | Path) -> bool:
    """Restore the newest version of the chunks that can be read; return whether there is one, not before the index's.

    LanceDB commits a file that a failed write has cut off.
    """
    if (table := open_table(database, store.CHUNKS)) is None:
        return False
    manifest = store.read_manifest(connect(uri), uri)
    first = 0 if manifest is None else manifest.version
    versions = sorted(one["version"] for one in table.list_versions() if one["version"] >= first)
    for version in versions[::-1]:
        try:
            with accessing(uri, "read"):
                store.all_rows(open_table(connect(uri), store.CHUNKS, version), ["position"])
        except CoragError:
            continue
        table.checkout(version)
        table.restore()
        return True
    return False


def _require_same_source(there: IndexManifest, wanted: IndexManifest, uri: str | Path) -> None:
    """Raise `IndexMismatchError` unless the index that is there can be updated."""
    there.require_embedder(wanted.embedder_name, wanted.dimension, uri)
    different = [
        f"{name} is {there.settings.get(name)!r}, not {value!r}"
        for name, value in wanted.settings.items()
        if name != "skipped" and there.settings.get(name) != value
    ]
    if different or not wanted.settings:
        raise IndexMismatchError(
            f"the index at {uri} holds another corpus or was made with other settings "
            f"({'; '.join(different) or 'other chunks'}); {store.REMEDY}"
        )


def _table_to_write(database: Any, wanted: IndexManifest) -> Any:
    """Return the table of chunks, emptied if its vectors are of another embedder or its columns of another version."""
    no_vectors = np.zeros((0, wanted.dimension), dtype=np.float32)
    schema = store.to_rows([], no_vectors).schema.with_metadata({_EMBEDDER: wanted.embedder_name})
    table = open_table(database, store.CHUNKS)
    if table is not None and _layout(table.schema) == _layout(schema):
        return table
    # An overwritten table keeps its old versions, among them the one that is read.
    return database.create_table(store.CHUNKS, schema=schema, mode="create" if table is None else "overwrite")


def _layout(schema: Any) -> tuple[Any, ...]:
    return schema.names, schema.metadata, schema.field("vector").type


class _Writer:
    """Brings a table to the chunks of a source, in batches: it embeds no text and writes no row that the table holds.

    Attributes:
        wanted: Ids of the chunks that the table has to hold, of unchanged parts and added.
        num_embedded: Chunks that were embedded.
        num_changed: Rows that were added, changed or deleted.
    """

    def __init__(
        self, table: Any, stored: Any, unchanged: Set[str], embedder: Embedder, batch_size: int, uri: str | Path
    ) -> None:
        self._table, self._stored, self._embedder = table, stored, embedder
        self._batch_size, self._uri = batch_size, uri
        rows = store.all_rows(stored, ["id", "part", "text_key"])
        ids, parts, keys, row_ids = (rows[name].to_pylist() for name in ("id", "part", "text_key", "_rowid"))
        self._by_id: dict[str, int] = dict(zip(ids, row_ids, strict=True))
        self._by_text: dict[bytes, int] = dict(zip(keys, row_ids, strict=True))
        self.wanted = {name for name, part in zip(ids, parts, strict=True) if part in unchanged}
        self._batch: list[Row] = []
        self._num_missing = 0
        self.num_embedded = self.num_changed = 0

    def add(self, row: Row) -> None:
        """Store a row unless the table holds it; rows are stored in batches."""
        store.metadata_json(row.chunk)  # refuses what cannot be stored
        self.wanted.add(row.chunk.id)
        self._batch.append(row)
        self._num_missing += store.text_key(row.chunk) not in self._by_text
        if self._num_missing == self._batch_size or len(self._batch) == max(self._batch_size, _MAX_BATCH):
            self.flush()

    def flush(self) -> None:
        """Store the rows that were added."""
        keys = [self._by_id.get(row.chunk.id) for row in self._batch]
        keys += [self._by_text.get(store.text_key(row.chunk)) for row in self._batch]
        with accessing(self._uri, "write"):
            columns = ["part", "position", *store.CHUNK_COLUMNS, "vector"]
            known = store.rows_at(self._stored, {key for key in keys if key is not None}, columns).values()
        there = {Row(store.to_chunk(row), row["part"], row["position"]) for row in known}
        batch, self._batch, self._num_missing = [row for row in self._batch if row not in there], [], 0
        if not batch:
            return
        vectors = {row["text"]: row["vector"] for row in known}
        missing = [row.chunk.text for row in batch if row.chunk.text not in vectors]
        new = iter(vectors_by(self._embedder, missing, unit=True))
        of_batch = [vectors[row.chunk.text] if row.chunk.text in vectors else next(new) for row in batch]
        rows = store.to_rows(batch, np.array(of_batch, np.float32))
        with accessing(self._uri, "write"):
            if self._by_id.keys().isdisjoint(row.chunk.id for row in batch):
                # A merge looks for each id in the whole table. Several writers would split the batch and could lose
                # its order.
                self._table.add(rows, write_parallelism=1)
            else:
                self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
        self.num_changed += len(batch)
        self.num_embedded += len(missing)

    def delete_unwanted(self) -> None:
        """Delete the rows that are not wanted."""
        unwanted = sorted(self._by_id.keys() - self.wanted)
        # A merge that deletes what its source lacks reads the whole table.
        for start in range(0, len(unwanted), _MAX_BATCH):
            self._table.delete(f"id IN ({', '.join(map(quoted, unwanted[start : start + _MAX_BATCH]))})")
        self.num_changed += len(unwanted)


def _complete(
    database: Any, table: Any, manifest: IndexManifest, parts: Mapping[str, str], wanted: Set[str], uri: str | Path
) -> None:
    """Make the search structures, check the rows, and record the index as complete; then merge small files."""
    # One file for each batch is slow to read. The version that is read must not go yet.
    table.optimize(cleanup_older_than=_FOREVER)
    num_changed = _make_search_structures(table, manifest)
    stored = store.all_rows(table, ["id"])["id"].to_pylist()
    if len(stored) != len(wanted) or wanted != set(stored):
        raise IndexMismatchError(
            f"the rows stored at {uri} are not those of this corpus; did two builds run? {store.REMEDY}"
        )

    def record() -> None:
        # LanceDB also commits search structures of which a file could not be written.
        if (written := open_table(connect(uri), store.CHUNKS, table.version)) is not None:
            written.search("a", query_type="fts").limit(1).to_list()
            written.search(np.ones(manifest.dimension, dtype=np.float32)).limit(1).to_list()
        store.write_manifest(database, uri, replace(manifest, version=table.version, num_changed=num_changed), parts)

    record()
    version = table.version
    # It also adds new rows to the search structures. The version recorded is seconds old, so it stays.
    table.optimize(cleanup_older_than=store.OLD_VERSIONS_KEPT)
    if table.version != version:
        record()


def _make_search_structures(table: Any, manifest: IndexManifest) -> int:
    """Make the full-text index and, for a large table, partitions of the vectors; return the rows changed since.

    Those of a large table of which little has changed stay, because new rows can join them. A query compares the codes
    of the nearest partitions, and ranks the best again by the true vectors. An HNSW graph takes ten times as long.
    """
    from lancedb.index import FTS, IvfRq

    made = {column: index.name for index in table.list_indices() for column in index.columns}
    large = manifest.num_chunks >= MIN_CHUNKS_TO_PARTITION and manifest.dimension % _NUMBERS_PER_BYTE == 0
    if large and made.keys() >= {"text", "vector"} and manifest.num_changed <= MOST_CHANGED * manifest.num_chunks:
        return manifest.num_changed
    batches = table.search().select(["text"]).to_batches()
    divided = any(unspaced([text]) for batch in batches for text in batch["text"].to_pylist())
    # ICU divides words where no spaces do; together with stop words, LanceDB 0.40 would lose every word after one.
    words = FTS(max_token_length=_LONGEST_WORD)
    if divided:
        words = replace(words, base_tokenizer="icu/split", remove_stop_words=False)
    table.create_index("text", config=words)
    if large:
        num_partitions = min(-(-manifest.num_chunks // CHUNKS_PER_PARTITION), _MAX_PARTITIONS)
        partitions = IvfRq(distance_type="cosine", num_partitions=num_partitions, num_bits=_BITS)
        table.create_index("vector", config=partitions)
    elif "vector" in made:
        table.drop_index(made["vector"])
    return 0
