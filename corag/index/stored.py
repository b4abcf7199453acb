"""The chunks of a corpus on disk, checked, until they are in an index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from corag.errors import DataError
from corag.index.store import metadata_json
from corag.text.disk import DiskRows, RepeatedIdError
from corag.types import Chunk


class StoredChunks(Iterable[Chunk]):
    """Chunks in their order, on disk, so that a corpus may be larger than the memory; see `DiskRows`.

    Raises:
        DataError: No chunks, an id that occurs twice, text that is no Unicode, metadata that is no JSON.
    """

    def __init__(self, chunks: Iterable[Chunk], *, least: int = 1) -> None:
        try:
            self._rows = DiskRows(
                (number, *_checked(chunk), metadata_json(chunk)) for number, chunk in enumerate(chunks)
            )
        except RepeatedIdError as error:
            raise DataError(f"chunk id {error.name!r} occurs twice; every chunk needs an id of its own") from error
        if len(self._rows) < least:
            raise DataError("there are no chunks to index; an index needs at least one: check the corpus file")

    @classmethod
    def of(cls, chunks: Iterable[Chunk]) -> StoredChunks:
        """Return chunks that are stored already as they are, and store others."""
        return chunks if isinstance(chunks, cls) else cls(chunks)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Chunk]:
        for _, name, text, metadata in self._rows:
            yield Chunk(name, text, json.loads(metadata))

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
