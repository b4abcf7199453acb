"""The cache behind every `Cached...` part: keys to values, bounded by bytes, optionally kept on disk.

Knows neither models nor texts.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np

from corag.errors import InputError
from corag.memory.sqlite import SQLiteTable
from corag.memory.store import Space, Store

ENTRY_BYTES = 256
"""What an entry takes beside key and value, measured on 50,000 small ones."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Codec(Generic[Value]):
    """Writes and reads one kind of value.

    Attributes:
        kind: Names the kind of value. One file holds several kinds apart from each other.
        encode: Returns the bytes of a value.
        decode: Returns the value of bytes; raises ValueError or `struct.error` for bytes that are none.
    """

    kind: str
    encode: Callable[[Value], bytes]
    decode: Callable[[bytes], Value]


TEXT: Codec[str] = Codec(
    "text", lambda text: text.encode("utf-8", "surrogatepass"), lambda data: data.decode("utf-8", "surrogatepass")
)


def structs(kind: str, layout: str) -> Codec[tuple[Any, ...]]:
    """Return a codec of tuples of numbers with a layout of the module `struct`, such as `<d?`."""
    packed = struct.Struct(layout)
    return Codec(kind, lambda values: packed.pack(*values), packed.unpack)


class Memory(Generic[Key, Value]):
    """Keys to values: the most recently used in RAM, all of them in a file where one is given.

    Threads may share a memory, and processes its file.

    Args:
        room: The most bytes of keys and values in RAM, of which the least recently used go first; 0 keeps none. Or what
            this memory keeps them in together with others.
        kind: What the values are, for `corag.memory.usage`, which leaves out those without a kind.
        owner: In a room that is shared, memories of one kind and one owner share their entries. By default nobody else
            has them.
        nbytes: Returns the size of an entry, given key and value; by default arrays and texts in both are added up.
        path: SQLite file, made with its folder when missing. Keys then have to be bytes. What it holds is never
            replaced: the first value of a key stays. It grows without bound, and may be deleted while nobody uses it.
        codec: How the file holds values; required with `path`.

    Raises:
        InputError: The number of bytes is negative.
        DataError: The file is damaged, of another program or version, or cannot be used; the methods raise it, too.
    """

    def __init__(
        self,
        room: int | Store,
        *,
        kind: str = "values",
        owner: object = None,
        nbytes: Callable[[Key, Value], int] | None = None,
        path: str | Path | None = None,
        codec: Codec[Value] | None = None,
    ) -> None:
        self.store = room if isinstance(room, Store) else Store(room)
        self._space = Space.of(kind, self if owner is None else owner)
        self._nbytes = nbytes or (lambda key, value: size_of(key) + size_of(value) + ENTRY_BYTES)
        self._codec = codec
        self._file = None if path is None else SQLiteTable(path, cast(Codec[Value], codec).kind)

    def get(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """Return those of the keys that are known, with their values."""
        wanted = dict.fromkeys(keys)
        found = cast(dict[Key, Value], self.store.get(self._space, wanted))
        if self._file is not None and len(found) < len(wanted):
            stored = self._file.get([cast(bytes, key) for key in wanted if key not in found])
            loaded = {cast(Key, key): self._decoded(data) for key, data in stored.items()}
            self._keep(loaded)
            found |= loaded
        return found

    def put(self, entries: Mapping[Key, Value]) -> None:
        """Keep entries; in the file all or none of them, and what it holds already stays."""
        if self._file is not None and entries:
            encode = cast(Codec[Value], self._codec).encode
            self._file.put({cast(bytes, key): encode(value) for key, value in entries.items()})
        self._keep(entries)

    def get_many(
        self, keys: Sequence[Key], compute_missing: Callable[[list[Key]], Iterable[Value]], batch: int | None = None
    ) -> list[Value]:
        """Return the value of each key, computing and keeping those that are not known.

        Args:
            keys: Keys, in any order and number.
            compute_missing: Gets distinct unknown keys in the order of `keys` and returns their values.
            batch: The most keys it gets at once; each batch is kept before the next. None passes them together.
        """
        found = self.get(keys)
        missing = [key for key in dict.fromkeys(keys) if key not in found]
        for start in range(0, len(missing), batch or max(1, len(missing))):
            block = missing[start : start + (batch or len(missing))]
            fresh = dict(zip(block, compute_missing(block), strict=True))
            self.put(fresh)
            found |= fresh
        return [found[key] for key in keys]

    def _keep(self, entries: Mapping[Key, Value]) -> None:
        if self.store.max_bytes:
            self.store.put(self._space, {key: (value, self._nbytes(key, value)) for key, value in entries.items()})

    def _decoded(self, data: bytes) -> Value:
        assert self._file is not None and self._codec is not None
        try:
            return self._codec.decode(data)
        except (ValueError, struct.error) as error:
            raise self._file.unusable(f"a value in it is damaged ({error})") from error


def megabytes(number: float, name: str = "cache_mb") -> int:
    """Return megabytes (1e6 bytes) as bytes.

    Raises:
        InputError: The number is negative.
    """
    if not number >= 0:
        raise InputError(f"{name} must be at least 0, got {number!r}; 0 turns the cache off")
    return int(number * 1e6)


def size_of(value: object) -> int:
    """Return the bytes of a value: of its arrays, texts and numbers, and of what it contains."""
    kind = type(value)
    if kind in _PLAIN:
        return sys.getsizeof(value)
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple | list | set | frozenset):
        # A question has thousands of words, and a call for each would show.
        inside = sys.getsizeof if _PLAIN.issuperset(map(type, value)) else size_of
        return sys.getsizeof(value) + sum(map(inside, value))
    if isinstance(value, Mapping):
        return sys.getsizeof(value) + sum(size_of(key) + size_of(held) for key, held in value.items())
    if is_dataclass(kind):
        return sum(size_of(getattr(value, name)) for name in _field_names(kind))
    return sys.getsizeof(value)


@lru_cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


_PLAIN = frozenset((str, bytes, int, float, bool, type(None)))
