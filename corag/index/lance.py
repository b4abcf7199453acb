"""The vector index: chunks with their embeddings in LanceDB, in a local folder or in object storage.

An index is two LanceDB tables at one place: `corag_chunks_<n>` with one row per chunk, and `corag_manifest`
with one JSON record per generation of the index. Every LanceDB commit is atomic, so a build that is killed
at any moment leaves whole batches behind and the next one goes on from there; the record that says
`complete` is written last. This module knows no model: it stores what an `Embedder` returns.

Axes: `n` texts, `q` queries, `d` numbers in a vector.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.errors import CoragError, DataError, IndexMismatchError, InputError, ModelError
from corag.optional import require
from corag.types import Candidate, Chunk, Embedder

FORMAT_VERSION: Final = 1
"""Layout of the tables; raised by every change that this version could not read."""

MIN_CHUNKS_FOR_HNSW = 50_000
"""From this many chunks on a search walks an HNSW graph; below, it compares every vector, which is exact."""

_MANIFEST_TABLE = "corag_manifest"
_CHUNKS_PREFIX = "corag_chunks_"
_CHUNK_COLUMNS = ["position", "id", "text", "metadata"]
# A graph is built in memory; a million vectors of 1024 numbers, quantised to bytes, take 1 GB.
_MAX_CHUNKS_PER_GRAPH = 1_000_000
# The graph compares quantised vectors: this many times the wanted rows are ranked again by the true ones
# (50,000 x 384 clustered vectors, recall of the best 100: 0.95 with 4, 0.99 with 8).
_REFINE_FACTOR = 8
_MIN_GRAPH_EFFORT = 200
# Queries that share one pass over the vectors; bounds the rows held at once.
_QUERIES_PER_PASS = 64

_REMEDY = "choose another index path (--index), or replace this index with overwrite=True"


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """What an index says about itself.

    Attributes:
        format_version: Layout of the tables.
        embedder_name: Name of the embedder that made the vectors.
        dimension: Length of each vector.
        fingerprint: Names corpus and settings: builds with the same one make the same index.
        num_chunks: Chunks of the finished index.
        settings: How the chunks were made; recorded for people, never interpreted.
        state: `building` until the last row and the last search structure are stored.
        table: Name of the table with the chunks.
    """

    format_version: int
    embedder_name: str
    dimension: int
    fingerprint: str
    num_chunks: int
    settings: Mapping[str, Any]
    state: Literal["building", "complete"]
    table: str

    @property
    def content(self) -> tuple[str, int, str, int]:
        """What two builds must share for one to finish the other."""
        return self.embedder_name, self.dimension, self.fingerprint, self.num_chunks


class ChunkIndex:
    """A complete index, open for reading.

    Attributes:
        uri: Where it lies.
        manifest: What it says about itself.
    """

    def __init__(self, uri: str, manifest: IndexManifest, table: Any) -> None:
        self.uri = uri
        self.manifest = manifest
        self._table = table

    @classmethod
    def build(
        cls,
        uri: str | Path,
        chunks: Iterable[Chunk],
        embedder: Embedder,
        *,
        batch_size: int = 256,
        fingerprint: str = "",
        progress: Callable[[int, int], None] | None = None,
        settings: Mapping[str, Any] = {},
        overwrite: bool = False,
    ) -> ChunkIndex:
        """Embed the chunks and store them, or finish a build that was interrupted.

        The same call can be repeated: batches that are stored are not embedded again, and a complete index
        with the same content is opened at once. Only one build may run at a place at a time.

        Args:
            uri: Local folder, or object storage: `s3://`, `gs://`, `az://`.
            chunks: What to store, in this order; held in memory. Ids must be unique, metadata JSON.
            embedder: Embeds `Chunk.text`.
            batch_size: Chunks that are embedded and committed at a time: the most that a kill can cost.
            fingerprint: Names corpus and settings; by default a hash of both.
            progress: Called with (chunks stored, chunks in all) at the start and after each batch.
            settings: How the chunks were made, JSON values; recorded in the manifest.
            overwrite: Replace the index that is there, whatever it is. It stays readable until the new one
                is complete; an interrupted replacement goes on when called with `overwrite` again.

        Raises:
            DataError: No chunks, an id that occurs twice, text that is no Unicode, metadata that is no JSON.
            IndexMismatchError: Another index is there and `overwrite` is False; nothing is changed.
            ModelError: The embedder returned something other than one unit vector per text.
            CoragError: The storage cannot be read or written; what was stored so far is kept.
        """
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        corpus = chunks if isinstance(chunks, Sequence) else list(chunks)
        corpus_hash = _checked_hash(corpus, settings)
        wanted = IndexManifest(
            format_version=FORMAT_VERSION,
            embedder_name=embedder.name,
            dimension=embedder.dimension,
            fingerprint=fingerprint or corpus_hash,
            num_chunks=len(corpus),
            settings=dict(settings),
            state="building",
            table="",
        )
        with _writing(uri):
            database = _connect(uri)
            building = _begin(database, wanted, uri, overwrite=overwrite)
        if building is not None:
            with _writing(uri):
                table = _open_table(database, building.table)
                # An empty table is false.
                if table is None:
                    table = _create_chunk_table(database, building)
                num_stored = table.count_rows()
                _require_rows(table, corpus[:num_stored], uri)
            if progress is not None:
                progress(num_stored, len(corpus))
            for start in range(num_stored, len(corpus), batch_size):
                batch = corpus[start : start + batch_size]
                vectors = _embed(embedder, batch)
                with _writing(uri):
                    # Several writers would split the batch and could lose its order.
                    table.add(_to_rows(batch, start, vectors), write_parallelism=1)
                if progress is not None:
                    progress(start + len(batch), len(corpus))
            with _writing(uri):
                _complete(database, table, building, corpus, uri)
        return cls.open(uri, embedder)

    @classmethod
    def open(cls, uri: str | Path, embedder: Embedder | None = None) -> ChunkIndex:
        """Open a complete index; writes nothing, now or later.

        Args:
            uri: Where it lies.
            embedder: What will embed the queries; checked against the one that embedded the chunks.

        Raises:
            IndexMismatchError: There is no index, it is half-written, damaged, of an unknown version, or was
                made by another embedder.
            CoragError: The storage cannot be read.
        """
        folder = _local_folder(uri)
        # LanceDB would create the folder.
        if folder is not None and not folder.is_dir():
            raise IndexMismatchError(_no_index(uri))
        with _reading(uri):
            database = _connect(uri)
            records = _read_records(database)
            if not records:
                raise IndexMismatchError(_no_index(uri))
            manifest = _parse((_in_state("complete", records) or records)[0], uri)
            if manifest.state != "complete":
                raise IndexMismatchError(
                    f"the index at {uri} is half-written: its build was interrupted; "
                    "run the same `corag index` command again, it does only what is missing"
                )
            table = _open_table(database, manifest.table)
            if table is None or table.count_rows() != manifest.num_chunks:
                raise IndexMismatchError(
                    f"the index at {uri} is damaged: it should hold {manifest.num_chunks} chunks; {_REMEDY}"
                )
        if embedder is not None:
            _require_embedder(manifest, embedder.name, embedder.dimension, uri)
        return cls(str(uri), manifest, table)

    @property
    def embedder_name(self) -> str:
        """Name of the embedder that made the vectors."""
        return self.manifest.embedder_name

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        return self.manifest.dimension

    def __len__(self) -> int:
        return self.manifest.num_chunks

    def search(self, vector: ArrayLike, k: int) -> list[Candidate]:
        """Return the `k` chunks nearest to a query.

        Args:
            vector: Embedding of the query, `[d]`; its length does not matter, but must not be 0.
            k: Candidates wanted, at least 1; fewer come back when the index holds fewer.

        Returns:
            Candidates by cosine similarity, best first; ties in the order in which the chunks were given.
        """
        return self.search_many(np.asarray(vector)[np.newaxis], k)[0]

    def search_many(self, vectors: ArrayLike, k: int) -> list[list[Candidate]]:
        """Return for each of `vectors`, `[q, d]`, what `search` returns; many queries share one pass."""
        queries = self._checked_queries(vectors)
        _require_positive(k)
        found: list[list[Candidate]] = []
        for start in range(0, len(queries), _QUERIES_PER_PASS):
            hits = _top_k(partial(self._nearest, queries[start : start + _QUERIES_PER_PASS]), k)
            chunks = self._chunks_at({hit.position for some in hits for hit in some})
            for some in hits:
                # Rounding can carry a cosine past 1.
                found.append([Candidate(chunks[at], min(1.0, max(-1.0, 1.0 - rank))) for rank, at in some])
        return found

    def search_text(self, query: str, k: int) -> list[tuple[Chunk, float]]:
        """Return up to `k` chunks that share words with `query`, each with its BM25 score, best first.

        The query is plain words: no character in it has a special meaning. Words are lower-cased and stemmed
        as English; stop words do not count. Ties stand in the order in which the chunks were given.
        """
        _require_positive(k)
        words = query.encode("utf-8", "replace").decode()
        [hits] = _top_k(lambda limit: [self._matching(words, limit)], k)
        chunks = self._chunks_at({hit.position for hit in hits})
        return [(chunks[at], -rank) for rank, at in hits]

    def chunks(self) -> Iterator[Chunk]:
        """Iterate over all chunks in the order in which they were given."""
        with _reading(self.uri):
            # A plain scan keeps the order of the rows, which `build` has checked.
            for batch in self._table.search().select(_CHUNK_COLUMNS).to_batches():
                yield from map(_to_chunk, batch.to_pylist())

    def get(self, ids: Iterable[str]) -> list[Chunk]:
        """Return the chunks with these ids, in the order of `ids`; an unknown id is an `InputError`."""
        from lancedb.expr import col

        wanted = list(ids)
        with _reading(self.uri):
            query = self._table.search().where(col("id").isin(sorted(set(wanted)))).select(_CHUNK_COLUMNS)
            found = {row["id"]: _to_chunk(row) for row in query.to_arrow().to_pylist()}
        unknown = [id_ for id_ in wanted if id_ not in found]
        if unknown:
            raise InputError(
                f"the index at {self.uri} has no chunk {unknown[0]!r} ({len(unknown)} of {len(wanted)} ids "
                "are unknown); ids must come from the corpus that was indexed"
            )
        return [found[id_] for id_ in wanted]

    def _checked_queries(self, vectors: ArrayLike) -> NDArray[np.float32]:
        queries = np.asarray(vectors, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dimension:
            raise InputError(
                f"a query vector must have the index's {self.dimension} dimensions ({self.embedder_name}), "
                f"got an array of shape {queries.shape[1:]}; embed queries with the index's embedder"
            )
        if not np.isfinite(queries).all() or not queries.any(axis=1).all():
            raise InputError("a query vector must be finite and not all zeros; check the embedder")
        return queries

    def _nearest(self, queries: NDArray[np.float32], limit: int) -> list[list[_Hit]]:
        with _reading(self.uri):
            rows = (
                self._table.search(queries, vector_column_name="vector")
                .distance_type("cosine")
                .limit(limit)
                .refine_factor(_REFINE_FACTOR)
                .ef(max(_MIN_GRAPH_EFFORT, _REFINE_FACTOR * limit))
                .select(["position", "_distance"])
                .to_arrow()
                .to_pylist()
            )
        hits: list[list[_Hit]] = [[] for _ in queries]
        for row in rows:
            # LanceDB leaves the column out when there is one query.
            hits[row.get("query_index", 0)].append(_Hit(row["_distance"], row["position"]))
        return hits

    def _matching(self, words: str, limit: int) -> list[_Hit]:
        from lancedb.query import MatchQuery

        with _reading(self.uri):
            query = self._table.search(MatchQuery(words, "text"), query_type="fts").limit(limit)
            rows = query.select(["position", "_score"]).to_arrow().to_pylist()
        return [_Hit(-row["_score"], row["position"]) for row in rows]

    def _chunks_at(self, positions: set[int]) -> dict[int, Chunk]:
        if not positions:
            return {}
        with _reading(self.uri):
            rows = self._table.take_offsets(sorted(positions)).select(_CHUNK_COLUMNS).to_arrow().to_pylist()
        return {row["position"]: _to_chunk(row) for row in rows}


class _Hit(NamedTuple):
    """A row that was found; lower `rank` is better: the cosine distance, or the negative BM25 score."""

    rank: float
    position: int


def _top_k(fetch: Callable[[int], list[list[_Hit]]], k: int) -> list[list[_Hit]]:
    """Return the first `k` hits per query; which of several ties LanceDB leaves out is chance, so ask on."""
    limit = k + 1
    while True:
        found = [sorted(hits) for hits in fetch(limit)]
        if not any(len(hits) >= limit and hits[k - 1].rank == hits[-1].rank for hits in found):
            return [hits[:k] for hits in found]
        limit *= 8


# --- Building ---


def _checked_hash(corpus: Sequence[Chunk], settings: Mapping[str, Any]) -> str:
    """Return a hash of corpus and settings; raise before anything is written if a chunk cannot be stored."""
    if not corpus:
        raise DataError("there are no chunks to index; an index needs at least one: check the corpus file")
    digest = hashlib.sha256(_to_json(settings, "the settings of the index").encode())
    seen: set[str] = set()
    for chunk in corpus:
        if chunk.id in seen:
            raise DataError(f"chunk id {chunk.id!r} occurs twice; every chunk needs an id of its own")
        seen.add(chunk.id)
        try:
            (chunk.id + chunk.text).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"chunk {chunk.id!r} is no valid Unicode text: {error}; remove the lone surrogate"
            ) from error
        digest.update(json.dumps([chunk.id, chunk.text, _metadata_json(chunk)]).encode())
    return digest.hexdigest()


def _metadata_json(chunk: Chunk) -> str:
    return _to_json(chunk.metadata, f"the metadata of chunk {chunk.id!r}")


def _to_json(values: Mapping[str, Any], what: str) -> str:
    try:
        return json.dumps(dict(values))
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} cannot be stored as JSON: {error}; use texts, numbers, lists and maps") from error


def _begin(database: Any, wanted: IndexManifest, uri: str | Path, *, overwrite: bool) -> IndexManifest | None:
    """Return the manifest of the build to go on with, or None when the wanted index is complete."""
    records = _read_records(database)
    complete = _in_state("complete", records)
    if records and not overwrite:
        _require_same_content(_parse((complete or records)[0], uri), wanted, uri)
        if complete:
            _drop_unrecorded(database)
            return None
    for record in _in_state("building", records):
        if record.get("format_version") == FORMAT_VERSION:
            begun = _parse(record, uri)
            if begun.content == wanted.content:
                return begun
    building = replace(wanted, table=_new_chunk_table_name(database))
    # The table is named before it exists, so that no kill can leave one that nobody knows of.
    _write_records(database, [*complete, asdict(building)])
    return building


def _require_same_content(found: IndexManifest, wanted: IndexManifest, uri: str | Path) -> None:
    _require_embedder(found, wanted.embedder_name, wanted.dimension, uri)
    if found.content != wanted.content:
        raise IndexMismatchError(
            f"the index at {uri} holds another corpus or was made with other settings "
            f"(fingerprint {found.fingerprint[:12]!r} of {found.num_chunks} chunks, "
            f"wanted {wanted.fingerprint[:12]!r} of {wanted.num_chunks}); {_REMEDY}"
        )


def _require_rows(table: Any, chunks: Sequence[Chunk], uri: str | Path) -> None:
    """Raise unless the table holds exactly these chunks in this order."""
    rows = table.search().select(["position", "id"]).to_arrow()
    if rows["position"].to_pylist() != list(range(len(chunks))) or rows["id"].to_pylist() != [
        chunk.id for chunk in chunks
    ]:
        raise IndexMismatchError(
            f"the {rows.num_rows} rows stored at {uri} are not the first chunks of this corpus in order: "
            f"the corpus has changed under the same fingerprint, or two builds ran at once; {_REMEDY}"
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


def _to_rows(batch: Sequence[Chunk], first_position: int, vectors: NDArray[np.float32]) -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "position": pa.array(range(first_position, first_position + len(batch)), pa.int64()),
            "id": pa.array([chunk.id for chunk in batch], pa.string()),
            "text": pa.array([chunk.text for chunk in batch], pa.string()),
            "metadata": pa.array([_metadata_json(chunk) for chunk in batch], pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
        }
    )


def _to_chunk(row: Mapping[str, Any]) -> Chunk:
    return Chunk(row["id"], row["text"], json.loads(row["metadata"]))


def _complete(database: Any, table: Any, building: IndexManifest, corpus: Sequence[Chunk], uri: str | Path) -> None:
    """Compact the rows, make the search structures, check the rows, and say `complete` last."""
    from lancedb.index import FTS, BTree, HnswSq

    # One fragment per batch is slow to read. Nobody else uses old versions; LanceDB warns about an age of 0.
    table.optimize(cleanup_older_than=timedelta(milliseconds=1))
    table.create_index("id", config=BTree())
    table.create_index("text", config=FTS())
    if len(corpus) >= MIN_CHUNKS_FOR_HNSW:
        num_graphs = -(-len(corpus) // _MAX_CHUNKS_PER_GRAPH)
        table.create_index("vector", config=HnswSq(distance_type="cosine", num_partitions=num_graphs))
    # Searching and reading rely on the rows' order, which compaction must have kept.
    _require_rows(table, corpus, uri)
    _write_records(database, [asdict(replace(building, state="complete"))])
    _drop_unrecorded(database)


# --- Storage ---


def _connect(uri: str | Path) -> Any:
    lancedb = require("lancedb", "index")
    try:
        return lancedb.connect(_local_folder(uri) or str(uri))
    except ValueError as error:
        raise InputError(
            f"{str(uri)!r} cannot hold an index: {error}; give a folder, or an s3://, gs:// or az:// address"
        ) from error


def _local_folder(uri: str | Path) -> Path | None:
    """Return the folder that `uri` names, or None for object storage."""
    path = str(uri).removeprefix("file://")
    if not path:
        raise InputError("the index path is empty; give a folder, or an s3://, gs:// or az:// address")
    return None if "://" in path else Path(path).expanduser()


def _open_table(database: Any, name: str) -> Any | None:
    try:
        return database.open_table(name)
    except ValueError as error:
        # A folder left by a kill before the table's first commit counts as no table, too.
        if "was not found" in str(error):
            return None
        raise


def _create_chunk_table(database: Any, manifest: IndexManifest) -> Any:
    import pyarrow as pa

    schema = {
        "position": pa.int64(),
        "id": pa.string(),
        "text": pa.string(),
        "metadata": pa.string(),
        "vector": pa.list_(pa.float32(), manifest.dimension),
    }
    return database.create_table(manifest.table, schema=pa.schema(schema))


def _chunk_table_names(database: Any) -> list[str]:
    names: list[str] = []
    page = database.list_tables()
    names.extend(page.tables)
    while page.page_token:
        page = database.list_tables(page_token=page.page_token)
        names.extend(page.tables)
    return [name for name in names if re.fullmatch(rf"{_CHUNKS_PREFIX}\d+", name)]


def _new_chunk_table_name(database: Any) -> str:
    generations = [int(name.removeprefix(_CHUNKS_PREFIX)) for name in _chunk_table_names(database)]
    return f"{_CHUNKS_PREFIX}{max(generations, default=0) + 1}"


def _drop_unrecorded(database: Any) -> None:
    """Drop the chunks of replaced indexes and of abandoned builds."""
    recorded = {record.get("table") for record in _read_records(database)}
    for name in _chunk_table_names(database):
        if name not in recorded:
            database.drop_table(name)


def _read_records(database: Any) -> list[dict[str, Any]]:
    """Return what the manifest table says of each generation; of another version, it may say anything."""
    table = _open_table(database, _MANIFEST_TABLE)
    if table is None:
        return []
    return [json.loads(text) for text in table.to_arrow()["record"].to_pylist()]


def _write_records(database: Any, records: Sequence[Mapping[str, Any]]) -> None:
    """Replace all records in one commit."""
    import pyarrow as pa

    rows = pa.table({"record": pa.array([json.dumps(record) for record in records], pa.string())})
    table = _open_table(database, _MANIFEST_TABLE)
    if table is None:
        database.create_table(_MANIFEST_TABLE, rows)
    else:
        table.add(rows, mode="overwrite")


def _in_state(state: str, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in records if record.get("state") == state]


def _parse(record: Mapping[str, Any], uri: str | Path) -> IndexManifest:
    version = record.get("format_version")
    if version != FORMAT_VERSION:
        raise IndexMismatchError(
            f"the index at {uri} has format version {version!r}, this CORAG reads version {FORMAT_VERSION}; "
            f"install the CORAG that wrote it, {_REMEDY}"
        )
    return IndexManifest(**record)


def _require_embedder(manifest: IndexManifest, name: str, dimension: int, uri: str | Path) -> None:
    if (manifest.embedder_name, manifest.dimension) != (name, dimension):
        raise IndexMismatchError(
            f"the index at {uri} was made by embedder {manifest.embedder_name!r} ({manifest.dimension} "
            f"dimensions), not by {name!r} ({dimension} dimensions); use that embedder, {_REMEDY}"
        )


def _require_positive(k: int) -> None:
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")


def _no_index(uri: str | Path) -> str:
    return f"there is no index at {uri}; check the path, or make one with `corag index`"


@contextmanager
def _reading(uri: str | Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise CoragError(
            f"cannot read the index at {uri}: {_reason(error)}; check that the storage can be reached"
        ) from error


@contextmanager
def _writing(uri: str | Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise CoragError(
            f"cannot write the index at {uri}: {_reason(error)}; what was stored so far is kept: check free "
            "space and permissions, then run the same command again"
        ) from error


def _reason(error: Exception) -> str:
    """Return LanceDB's message without the place in its own source."""
    return re.sub(r",? \S+\.rs:\d+:\d+", "", str(error))
