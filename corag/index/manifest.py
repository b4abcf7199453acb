"""What an index says about itself: one JSON record per generation of the index, in the table `corag_manifest`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from corag.errors import IndexMismatchError
from corag.index.store import open_table

FORMAT_VERSION: Final = 1
"""Layout of the tables; raised by every change that this version could not read."""

REMEDY = "choose another index path (--index), or replace this index with overwrite=True"
_TABLE = "corag_manifest"


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

    @classmethod
    def parse(cls, record: Mapping[str, Any], uri: str | Path) -> IndexManifest:
        """Return a record as a manifest.

        Raises:
            IndexMismatchError: Another format version wrote it.
        """
        version = record.get("format_version")
        if version != FORMAT_VERSION:
            raise IndexMismatchError(
                f"the index at {uri} has format version {version!r}, this CORAG reads version {FORMAT_VERSION}; "
                f"install the CORAG that wrote it, {REMEDY}"
            )
        return cls(**record)

    def require_embedder(self, name: str, dimension: int, uri: str | Path) -> None:
        """Raise `IndexMismatchError` unless this embedder made the vectors."""
        if (self.embedder_name, self.dimension) != (name, dimension):
            raise IndexMismatchError(
                f"the index at {uri} was made by embedder {self.embedder_name!r} ({self.dimension} dimensions), "
                f"not by {name!r} ({dimension} dimensions); use that embedder, {REMEDY}"
            )


def read_records(database: Any) -> list[dict[str, Any]]:
    """Return the record of each generation; one of another format version may hold anything."""
    table = open_table(database, _TABLE)
    return [] if table is None else [json.loads(text) for text in table.to_arrow()["record"].to_pylist()]


def write_records(database: Any, records: Sequence[Mapping[str, Any]]) -> None:
    """Replace all records in one commit."""
    import pyarrow as pa

    rows = pa.table({"record": pa.array([json.dumps(record) for record in records], pa.string())})
    table = open_table(database, _TABLE)
    if table is None:
        database.create_table(_TABLE, rows)
    else:
        table.add(rows, mode="overwrite")


def in_state(state: str, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of one state."""
    return [record for record in records if record.get("state") == state]
