"""Access to LanceDB: connections, tables, rows of chunks, storage errors in words, and what an index says about itself.

The table `corag_manifest` has one JSON record per generation of the index.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from corag.errors import CoragError, DataError, IndexMismatchError, InputError
from corag.index.core import CoreDatabase
from corag.index.where import FIELDS, fields_json
from corag.optional import require
from corag.types import Chunk

FORMAT_VERSION: Final = 1
"""Layout of the tables; raised by every change that this version could not read."""
PINNED_FORMAT_VERSION: Final = 2
"""The same where the record names the version of the table that is read."""
READABLE_VERSIONS: Final = (FORMAT_VERSION, PINNED_FORMAT_VERSION)

REMEDY = "choose another index path (--index, or --out of `corag index`), or replace this index (--overwrite)"
_TABLE = "corag_manifest"

OLD_VERSIONS_KEPT = timedelta(hours=1)
"""Who opened an index before it was changed in place can read it for so long."""

CHUNK_COLUMNS = ["id", "text", "metadata"]
"""Columns that a chunk is made from."""

_CHUNKS_PREFIX = "corag_chunks_"
_REMEDIES = {
    "read": "open it again if it was brought up to date meanwhile, else check that the storage can be "
    "reached; damaged files need a new index (corag index --overwrite)",
    "write": "what was stored so far is kept: check free space and permissions, then run the same command again",
}
_REMOTE_REMEDY = "check the address and the storage's variables in the environment (AWS_REGION, AWS_ACCESS_KEY_ID, ...)"
_REASONS = (
    (r"<Code>([^<]+)</Code>\s*<Message>([^<]+?)\.?</Message>", r"\1 (\2)"),
    (r"Failed to get AWS credentials|TokenRequest", "there are no valid credentials"),
    (r'(?:message|error): \\?"([^"\\]+)\\?"', r"\1"),
    (r"inner: Status \{ status: (\d+)", r"HTTP status \1"),
)
"""What object storage says -> in words."""


def connect(uri: str | Path, to: Literal["read", "write"] = "write") -> Any:
    """Return the LanceDB database at a place; to read a folder, its core alone, which loads at once.

    Raises:
        InputError: `uri` is no place for an index.
        CoragError: The object storage cannot be reached.
    """
    folder = local_folder(uri)
    # LanceDB warns of every partition that none of the new rows falls into.
    os.environ.setdefault("LANCEDB_LOG", "error")
    try:
        if folder is not None and to == "read":
            # A release whose core has another form is read through its package.
            with suppress(AttributeError, TypeError):
                return CoreDatabase(folder)
        return _import_lancedb().connect(folder or str(uri))
    except ValueError as error:
        if folder is None and "No object store provider" not in str(error):
            raise CoragError(f"cannot reach the index at {uri}: {_reason(error)}; {_REMOTE_REMEDY}") from error
        raise InputError(
            f"{str(uri)!r} cannot hold an index: {_reason(error)}; give a folder, or an s3://, gs:// or az:// address"
        ) from error


class _Deferred(ModuleType):
    """A package whose `__init__` runs when it is first asked for an attribute; submodules can be imported before."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def _import_lancedb() -> ModuleType:
    """Import LanceDB without the client of its cloud service, which takes 0.5 of the 1.3 s (CPU) of the import.

    LanceDB needs the data models of `lance_namespace_urllib3_client` alone; the package's `__init__` builds validators
    for every call of the service.
    """
    name = "lance_namespace_urllib3_client"
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is not None:
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        module.__class__ = _Deferred
    return require("lancedb", "index")


def local_folder(uri: str | Path) -> Path | None:
    """Return the folder that `uri` names, or None for object storage."""
    path = str(uri).removeprefix("file://")
    if not path:
        raise InputError("the index path is empty; give a folder, or an s3://, gs:// or az:// address")
    return None if "://" in path else Path(path).expanduser()


@contextmanager
def accessing(uri: str | Path, to: Literal["read", "write"]) -> Iterator[None]:
    """Turn LanceDB's errors into `CoragError`s that say what to do."""
    try:
        yield
    except CoragError:
        raise
    except (OSError, RuntimeError, ValueError, OverflowError) as error:
        remedy = _REMEDIES[to] if local_folder(uri) else f"{_REMOTE_REMEDY}, then run the same command again"
        raise CoragError(f"cannot {to} the index at {uri}: {_reason(error)}; {remedy}") from error


def _reason(error: Exception) -> str:
    """Return what LanceDB's error says to a person: it prints its own structures, with the places in its source."""
    text = str(error)
    for pattern, words in _REASONS:
        if found := re.search(pattern, text):
            return found.expand(words)
    text = re.sub(r", location: Location \{[^}]*\}, backtrace: \w+", "", text)
    text = re.sub(r"^(Invalid input, |lance error: LanceError\(\w+\): )", "", text)
    return re.sub(r",? \S+\.rs:\d+:\d+", "", text).rstrip(". ")


def open_table(database: Any, name: str, version: int | None = None) -> Any | None:
    """Return a table, or None where there is none; with `version` as it was then, to be read only."""
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


def chunk_table_names(database: Any) -> list[str]:
    """Return the names of all tables of chunks."""
    page = database.list_tables()
    names = list(page.tables)
    while page.page_token:
        page = database.list_tables(page_token=page.page_token)
        names.extend(page.tables)
    return [name for name in names if re.fullmatch(rf"{_CHUNKS_PREFIX}\d+", name)]


def new_chunk_table_name(database: Any) -> str:
    """Return the name of the next generation's table."""
    generations = [int(name.removeprefix(_CHUNKS_PREFIX)) for name in chunk_table_names(database)]
    return f"{_CHUNKS_PREFIX}{max(generations, default=0) + 1}"


def to_rows(batch: Sequence[Chunk], first_position: int, vectors: NDArray[np.float32]) -> Any:
    """Return chunks and their vectors, `[n, d]`, as an Arrow table."""
    import pyarrow as pa

    return pa.table(
        {
            "position": pa.array(range(first_position, first_position + len(batch)), pa.int64()),
            "id": pa.array([chunk.id for chunk in batch], pa.string()),
            "text": pa.array([chunk.text for chunk in batch], pa.string()),
            "metadata": pa.array([metadata_json(chunk) for chunk in batch], pa.string()),
            FIELDS: pa.array([fields_json(chunk.metadata) for chunk in batch], pa.json_(pa.string())),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
        }
    )


def to_chunk(row: Mapping[str, Any]) -> Chunk:
    """Return the chunk that a row holds."""
    try:
        return Chunk(row["id"], row["text"], json.loads(row["metadata"]))
    except (ValueError, TypeError) as error:
        raise DataError(f"the index holds a damaged chunk, {row['id']!r} ({error}); {REMEDY}") from error


def metadata_json(chunk: Chunk) -> str:
    """Return a chunk's metadata as JSON."""
    return to_json(chunk.metadata, f"the metadata of chunk {chunk.id!r}")


def to_json(values: Mapping[str, Any], what: str) -> str:
    """Return values as JSON; where they cannot be, a `DataError` says `what` they are."""
    try:
        return json.dumps(dict(values))
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} cannot be stored as JSON: {error}; use texts, numbers, lists and maps") from error


_PINNED = ("version", "num_changed")


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """What an index says about itself.

    Attributes:
        format_version: Layout of the tables.
        embedder_name: Name of the embedder that made the vectors.
        dimension: Length of each vector.
        fingerprint: Names corpus and settings: builds with the same one make the same index.
        num_chunks: Chunks of the finished index; 0 while a build does not know it yet.
        settings: How the chunks were made; recorded for people, never interpreted.
        state: `building` until the last row and the last search structure are stored.
        table: Name of the table with the chunks.
        version: The version of the table that is read; None for the last one.
        num_changed: Chunks that were added and deleted since the table was written.
    """

    format_version: int
    embedder_name: str
    dimension: int
    fingerprint: str
    num_chunks: int
    settings: Mapping[str, Any]
    state: Literal["building", "complete"]
    table: str
    version: int | None = None
    num_changed: int = 0

    @property
    def content(self) -> tuple[str, int, str]:
        """What two builds must share for one to finish the other."""
        return self.embedder_name, self.dimension, self.fingerprint

    @classmethod
    def parse(cls, record: Mapping[str, Any], uri: str | Path) -> IndexManifest:
        """Return a record as a manifest.

        Raises:
            IndexMismatchError: Another format version wrote it.
        """
        version = record.get("format_version")
        if version not in READABLE_VERSIONS:
            raise IndexMismatchError(
                f"the index at {uri} has format version {version!r}, this CORAG reads version {PINNED_FORMAT_VERSION}; "
                f"install the CORAG that wrote it, {REMEDY}"
            )
        return cls(**{name: value for name, value in record.items() if name != "files"})

    def record(self) -> dict[str, Any]:
        """Return it as a record, which `parse` reads; one of format version 1 has no more than that version knows."""
        whole = asdict(self)
        return whole if self.version is not None else {name: whole[name] for name in whole if name not in _PINNED}

    def require_embedder(self, name: str, dimension: int, uri: str | Path) -> None:
        """Raise `IndexMismatchError` unless this embedder made the vectors."""
        if (self.embedder_name, self.dimension) != (name, dimension):
            raise IndexMismatchError(
                f"the index at {uri} was made by embedder {self.embedder_name!r} ({self.dimension} dimensions), "
                f"not by {name!r} ({dimension} dimensions); use that embedder, {REMEDY}"
            )


def read_records(database: Any, *, files: bool = False) -> list[dict[str, Any]]:
    """Return the record of each generation; one of another format version may hold anything.

    With `files` each has what is known of the files it was made from, which may be as long as their list.
    """
    table = open_table(database, _TABLE)
    if table is None:
        return []
    rows = table.search().select([name for name in table.schema.names if files or name == "record"]).to_arrow()
    return [
        json.loads(row["record"]) | ({"files": json.loads(row["files"])} if row.get("files") else {})
        for row in rows.to_pylist()
    ]


def write_records(database: Any, records: Sequence[Mapping[str, Any]]) -> None:
    """Replace all records in one commit.

    LanceDB also commits a file that was cut off by a full disk, so the records are read back; ones that cannot be are
    taken back.
    """
    import pyarrow as pa

    bare = [{name: value for name, value in record.items() if name != "files"} for record in records]
    rows = pa.table(
        {
            "record": pa.array([json.dumps(record) for record in bare], pa.string()),
            # A column of its own, because opening an index does not need it.
            "files": pa.array([json.dumps(record.get("files", {})) for record in records], pa.string()),
        }
    )
    table = open_table(database, _TABLE)
    before = None if table is None else table.version
    if table is None:
        database.create_table(_TABLE, rows)
    else:
        table.add(rows, mode="overwrite")
    try:
        read_records(database, files=True)
    except (OSError, RuntimeError, ValueError) as error:
        if table is None:
            database.drop_table(_TABLE)
        else:
            table.restore(before)
        raise OSError("what is stored could not be recorded: the disk is full, or the file too large") from error


def drop_old_records(database: Any) -> None:
    """Drop records that were replaced a while ago; each may hold a list of all files."""
    table = open_table(database, _TABLE)
    if table is not None:
        table.optimize(cleanup_older_than=OLD_VERSIONS_KEPT)


def in_state(state: str, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of one state."""
    return [record for record in records if record.get("state") == state]
