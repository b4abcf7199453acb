"""Whether a local index lies within its folder: Lance reads wherever a table's manifest or a symbolic link says.

A shallow clone of a table holds no rows. Its manifest has the paths or addresses of other tables, its bases, and
LanceDB opens them: an index from somebody else could answer from other folders, or reach a server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from corag.errors import DataError
from corag.optional import needed

_MAGIC = b"LANC"
_FOOTER = 16
"""Bytes: the position of the manifest (8), the version of the format (4) and `_MAGIC`."""
_BASE_PATHS = 18
"""Field of a manifest, in `table.proto` of Lance: messages with the field `path`."""
_PATH = 4


def require_inside(folder: Path, names: Sequence[str]) -> None:
    """Check that what is below some entries of a folder refers to nothing outside of the folder.

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
