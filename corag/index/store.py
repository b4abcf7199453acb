"""Access to LanceDB: connections, one writer at a time, rows of chunks, and the records of an index.

An index is two tables: `corag_chunks` has a row for each chunk, `corag_manifest` a JSON record of the complete index.
The record names the version of `corag_chunks` that is read, so readers see the old index until the new one is recorded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.storage import expanded, folder_lock
from corag.errors import CoragError, DataError, IndexMismatchError, InputError
from corag.index.where import FIELDS, fields_json
from corag.optional import needed, require
from corag.types import Chunk

FORMAT_VERSION: Final = 5
"""Layout of the tables; raised by every change that this version could not read."""

REMEDY = "choose another index path (--index, or --out of `corag index`), or replace this index (--overwrite)"

OLD_VERSIONS_KEPT = timedelta(hours=1)
"""How long a process that opened an index before it was updated can go on reading the old version."""

CHUNKS = "corag_chunks"
MANIFEST = "corag_manifest"
_LOCK_FILE = ".corag.lock"
_TABLES = (f"{CHUNKS}.lance", f"{MANIFEST}.lance", "__manifest")
"""What LanceDB reads of a folder."""

CHUNK_COLUMNS = ["id", "text", "metadata"]
"""Columns that a chunk is made from."""

_REMEDIES = {
    "read": "open it again if it was updated meanwhile, else check that the storage can be reached with the "
    "credentials in the environment; damaged files need a new index",
    "write": "what was stored so far is kept: check free space, permissions and credentials, and run the command again"
    ", with --overwrite if files are damaged",
}


def connect(uri: str | Path) -> Any:
    """Return the database at a path or address; `InputError` if it cannot hold an index.

    A local one that refers to other folders or servers is a `DataError`.
    """
    folder = local_folder(uri)
    if folder is not None:
        require_inside(folder, _TABLES)
    # LanceDB warns of every partition that none of the new rows falls into.
    os.environ.setdefault("LANCEDB_LOG", "error")
    try:
        return require("lancedb", "index").connect(str(folder.absolute() if folder else uri))
    except ValueError as error:
        if folder is None and "No object store provider" not in str(error):
            raise
        raise InputError(
            f"{str(uri)!r} cannot hold an index: {reason(error)}; give a folder, or an s3://, gs:// or az:// address"
        ) from error


def local_folder(uri: str | Path) -> Path | None:
    """Return the folder that `uri` names, or None for object storage."""
    path = str(uri).removeprefix("file://")
    if not path:
        raise InputError("the index path is empty; give a folder, or an s3://, gs:// or az:// address")
    return None if "://" in path else expanded(path)


@contextmanager
def accessing(uri: str | Path, to: Literal["read", "write"]) -> Iterator[None]:
    """Turn LanceDB's errors into a `CoragError` that says what to do."""
    try:
        yield
    except CoragError:
        raise
    except Exception as error:
        # The type of a panic, as over damaged files, cannot be imported.
        known = isinstance(error, OSError | RuntimeError | ValueError | OverflowError)
        if not known and type(error).__name__ != "RustPanic":
            raise
        raise CoragError(f"cannot {to} the index at {uri}: {reason(error)}; {_REMEDIES[to]}") from error


def reason(error: Exception) -> str:
    """Return LanceDB's message without its internal structures and source locations."""
    words = str(error).partition(", location: Location {")[0].split()
    return " ".join(word for word in words if ".rs:" not in word).rstrip(". ,")


def open_table(database: Any, name: str, version: int | None = None) -> Any | None:
    """Return a table, or None if there is none; a `version` of it can only be read."""
    try:
        table = database.open_table(name)
        if version is not None:
            table.checkout(version)
        return table
    except ValueError as error:
        # A folder left by a kill before the table's first commit counts as no table, too.
        if "was not found" in str(error):
            return None
        raise


def all_rows(table: Any, columns: Sequence[str]) -> Any:
    """Return columns of all rows, and their ids in this version, `_rowid`, as an Arrow table."""
    return table.search().select(list(columns)).with_row_id(True).to_arrow()


def rows_at(table: Any, row_ids: Iterable[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
    """Return columns of rows by their ids."""
    wanted = sorted(row_ids)
    rows = table.take_row_ids(wanted).select(list(columns)).with_row_id().to_list() if wanted else []
    return {row["_rowid"]: row for row in rows}


@contextmanager
def index_lock(uri: str | Path) -> Iterator[None]:
    """Keep other processes from writing to an index; wait while one does. Object storage has no lock."""
    require("filelock", "index")
    with ExitStack() as stack:
        if (folder := local_folder(uri)) is not None:
            with accessing(uri, "write"):
                stack.enter_context(folder_lock(folder, _LOCK_FILE))
        yield


class Row(NamedTuple):
    """A chunk, the part that it is from, such as a file, and its place there, from 0."""

    chunk: Chunk
    part: str
    position: int


def to_rows(rows: Sequence[Row], vectors: NDArray[np.float32]) -> Any:
    """Return rows with their vectors, `[n, d]`, as an Arrow table."""
    import pyarrow as pa

    chunks = [row.chunk for row in rows]
    return pa.table(
        {
            "id": pa.array([chunk.id for chunk in chunks], pa.string()),
            "part": pa.array([row.part for row in rows], pa.string()),
            "position": pa.array([row.position for row in rows], pa.int64()),
            "text": pa.array([chunk.text for chunk in chunks], pa.string()),
            "text_key": pa.array(map(text_key, chunks), pa.binary(16)),
            "metadata": pa.array([metadata_json(chunk) for chunk in chunks], pa.string()),
            FIELDS: pa.array([fields_json(chunk.metadata) for chunk in chunks], pa.json_(pa.string())),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
        }
    )


def text_key(chunk: Chunk) -> bytes:
    """Return the key by which rows with the same text are found."""
    return hashlib.sha256(chunk.text.encode()).digest()[:16]


def to_chunk(row: Mapping[str, Any]) -> Chunk:
    """Return the chunk of a row."""
    return Chunk(row["id"], row["text"], json.loads(row["metadata"]))


def metadata_json(chunk: Chunk) -> str:
    """Return a chunk's metadata as JSON; `DataError` if it is not, or the chunk not valid Unicode."""
    try:
        (chunk.id + chunk.text).encode()
        return json.dumps(dict(chunk.metadata))
    except (TypeError, ValueError) as error:
        raise DataError(f"chunk {chunk.id!r} cannot be stored: {error}; use valid Unicode and JSON metadata") from error


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """What an index says about itself.

    Attributes:
        embedder_name: Name of the embedder that made the vectors.
        dimension: Length of each vector.
        fingerprint: Names corpus and settings: builds with the same one make the same index.
        settings: How the chunks were made.
        num_chunks: Chunks of the finished index.
        version: The version of the table of chunks that is read.
        num_changed: Chunks added, changed and deleted since the search structures were made.
        format_version: Layout of the tables.
    """

    embedder_name: str
    dimension: int
    fingerprint: str
    settings: Mapping[str, Any]
    num_chunks: int = 0
    version: int = 0
    num_changed: int = 0
    format_version: int = FORMAT_VERSION

    def require_embedder(self, name: str, dimension: int, uri: str | Path) -> None:
        """Raise `IndexMismatchError` unless this embedder made the vectors."""
        if (self.embedder_name, self.dimension) != (name, dimension):
            raise IndexMismatchError(
                f"the index at {uri} was made by embedder {self.embedder_name!r} ({self.dimension} dimensions), "
                f"not by {name!r} ({dimension} dimensions); use that embedder, {REMEDY}"
            )


def read_manifest(database: Any, uri: str | Path) -> IndexManifest | None:
    """Return what a complete index says about itself, or None; `IndexMismatchError` for another format version."""
    record = _recorded(database, "record")
    if not record:
        return None
    version = record.get("format_version")
    if version != FORMAT_VERSION:
        raise IndexMismatchError(
            f"the index at {uri} has format version {version!r}, this CORAG reads version {FORMAT_VERSION}; install "
            f"the CORAG that wrote it, {REMEDY}"
        )
    return IndexManifest(**record)


def read_records(uri: str | Path) -> tuple[IndexManifest | None, dict[str, str]]:
    """Return what a complete index says about itself, and its parts, such as files, with the hash of their content."""
    database = connect(uri)
    return read_manifest(database, uri), _recorded(database, "files")


def _recorded(database: Any, column: str) -> dict[str, Any]:
    table = open_table(database, MANIFEST)
    rows = [] if table is None else all_rows(table, [column]).to_pylist()
    return json.loads(rows[0][column]) if rows else {}


def write_manifest(database: Any, uri: str | Path, manifest: IndexManifest, parts: Mapping[str, str]) -> None:
    """Record a complete index and its parts in one commit.

    LanceDB also commits a file that was cut off by a full disk, so the record is read back; if it is unreadable, the
    previous one is restored.
    """
    import pyarrow as pa

    content = pa.table({"record": [json.dumps(asdict(manifest))], "files": [json.dumps(dict(parts))]})
    table = open_table(database, MANIFEST)
    if table is None:
        table = database.create_table(MANIFEST, schema=content.schema)
    before = table.version
    table.add(content, mode="overwrite")
    try:
        read_records(uri)
    except (OSError, RuntimeError, ValueError) as error:
        table.restore(before)
        raise OSError("the index could not be recorded: the disk is full, or the file too large") from error
    # Each old version may hold a list of all files.
    table.optimize(cleanup_older_than=OLD_VERSIONS_KEPT)


# --- What a local index refers to ---

_MAGIC = b"LANC"
_FOOTER = 16
"""Bytes: the position of the manifest (8), the version of the format (4) and `_MAGIC`."""
_BASE_PATHS = 18
"""Field of a manifest, in `table.proto` of Lance: messages with the field `path`."""
_PATH = 4


def require_inside(folder: Path, names: Sequence[str]) -> None:
    """Check that what is below some entries of a folder refers to nothing outside of the folder.

    Lance reads wherever a table's manifest or a symbolic link says: a shallow clone of a table holds no rows, but the
    paths or addresses of other tables, its bases. An index from somebody else could answer from other folders, or reach
    a server.

    Raises:
        DataError: A symbolic link leads out of the folder, or the manifest of a table names a base.
    """
    root = folder.resolve()
    for path in _below([folder / name for name in names]):
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise DataError(
                f"{path} is a link to {str(path.readlink())!r:.200}, outside of the index, and is not followed; if you "
                "trust it, copy what it links to into its place"
            )
        if ".manifest" in path.name and (bases := _bases(path)):
            raise DataError(
                f"{path} reads rows from {bases[0]!r:.200}, outside of the index, which may not choose other folders "
                "or servers; it is a shallow clone: copy the whole index, or build it with `corag index`"
            )


def _below(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield path
        for parent, folders, files in os.walk(path):
            yield from (Path(parent, name) for name in (*folders, *files))


def _bases(path: Path) -> list[str]:
    """Return the bases that a manifest names; none if it was cut off, as Lance does not read it either."""
    try:
        content = path.read_bytes()
        if content[-4:] != _MAGIC:
            return []
        start = int.from_bytes(content[-_FOOTER:-8], "little")
        size = int.from_bytes(content[start : start + 4], "little")
        bases = _messages(content[start + 4 : start + 4 + size], _BASE_PATHS)
        return [b"".join(_messages(base, _PATH)).decode(errors="replace") for base in bases]
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}); delete the index and build it again") from error


def _messages(message: bytes, number: int) -> list[bytes]:
    """Return the content of each field with a number, of a Protocol Buffers message without its definition."""
    with needed("protobuf", "index"):
        from google.protobuf.empty_pb2 import Empty
        from google.protobuf.message import DecodeError
        from google.protobuf.unknown_fields import UnknownFieldSet
    try:
        fields = UnknownFieldSet(Empty.FromString(message))
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return [field.data for field in fields if field.field_number == number and isinstance(field.data, bytes)]
