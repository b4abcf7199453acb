"""Values that are computed once: a byte-bounded LRU in memory, shared or private, and a store in a SQLite file."""

from __future__ import annotations

import sqlite3
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from corag.errors import DataError, InputError

ENTRY_BYTES = 256
"""Overhead of an entry beside key and value, measured on 50,000 small ones."""

_VERSION = 2
_BUSY_TIMEOUT_S = 60.0
# Parameters of one statement; SQLite allows at least 999.
_MOST_PARAMETERS = 500

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Cache(ABC, Generic[Key, Value]):
    """Keys to values that are computed if they are missing."""

    @abstractmethod
    def get(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """Return those of the keys that are present, with their values."""

    @abstractmethod
    def put(self, entries: Mapping[Key, Value]) -> None:
        """Add entries."""

    def get_many(
        self, keys: Sequence[Key], compute_missing: Callable[[list[Key]], Iterable[Value]], batch: int | None = None
    ) -> list[Value]:
        """Return the value of each key, computing and keeping the missing ones, in their order and each once.

        At most `batch` keys are computed together, and kept before the next; None computes all together.
        """
        values = self.get(keys)
        missing = [key for key in dict.fromkeys(keys) if key not in values]
        for start in range(0, len(missing), batch or max(1, len(missing))):
            block = missing[start : start + (batch or len(missing))]
            fresh = dict(zip(block, compute_missing(block), strict=True))
            self.put(fresh)
            values |= fresh
        return [values[key] for key in keys]


class Capacity:
    """The bytes that one or more `LRU` caches keep together; the least recently used entries of all go first."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        # (owner, key) -> (value, bytes), the least recently used first.
        self.entries: OrderedDict[tuple[Any, Hashable], tuple[Any, int]] = OrderedDict()
        self.lock = threading.Lock()
        with _REGISTERING:
            _CAPACITIES.add(self)


class LRU(Cache[Key, Value]):
    """The most recently used entries, in memory. Threads may share it.

    Args:
        capacity: Maximum bytes of keys and values, 0 for no cache; or a `Capacity` that this cache shares with others.
        owner: Caches of one capacity and owner share their entries, so their keys must not mean different values. By
            default each cache has its own.
    """

    def __init__(self, capacity: int | Capacity, *, owner: object = None) -> None:
        self.capacity = capacity if isinstance(capacity, Capacity) else Capacity(capacity)
        # A dead reference equals only itself, so entries of an owner that is gone are nobody's, and age out.
        self._owner = weakref.ref(self if owner is None else owner)
        hash(self._owner)  # which it remembers

    def get(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """Return those of the keys that are present, with their values, and mark them as used."""
        pool, present = self.capacity, {}
        with pool.lock:
            for key in dict.fromkeys(keys):
                entry = pool.entries.get(address := (self._owner, key))
                if entry is not None:
                    present[key] = entry[0]
                    pool.entries.move_to_end(address)
        return present

    def put(self, entries: Mapping[Key, Value]) -> None:
        """Keep entries, replacing those of the same key."""
        pool = self.capacity
        if not pool.max_bytes:
            return
        sized = {key: (value, size_of(key) + size_of(value) + ENTRY_BYTES) for key, value in entries.items()}
        with pool.lock:
            for key, (value, nbytes) in sized.items():
                address = self._owner, key
                pool.used_bytes += nbytes - pool.entries.pop(address, (None, 0))[1]
                pool.entries[address] = value, nbytes
            while pool.used_bytes > pool.max_bytes:
                pool.used_bytes -= pool.entries.popitem(last=False)[1][1]


_CAPACITIES: weakref.WeakSet[Capacity] = weakref.WeakSet()
_SHARED: weakref.WeakValueDictionary[int, Capacity] = weakref.WeakValueDictionary()
_REGISTERING = threading.RLock()


def shared_capacity(max_bytes: int) -> Capacity:
    """Return the capacity that all callers with this size share, for as long as one of them keeps it."""
    with _REGISTERING:
        capacity = _SHARED.get(max_bytes)
        if capacity is None:
            capacity = _SHARED[max_bytes] = Capacity(max_bytes)
        return capacity


def used_bytes() -> int:
    """Return the bytes that the caches of this process hold, with their keys."""
    with _REGISTERING:
        return sum(capacity.used_bytes for capacity in _CAPACITIES)


def forget() -> None:
    """Empty all caches of this process, so that a benchmark can measure a first question."""
    with _REGISTERING:
        for capacity in _CAPACITIES:
            with capacity.lock:
                capacity.entries.clear()
                capacity.used_bytes = 0


class DiskStore(Cache[bytes, bytes]):
    """Bytes by key in a table, named `kind`, of a SQLite file, which threads and processes may share.

    The first value of a key stays. The file grows without bound, and may be deleted while nobody uses it. Every call
    opens it anew, so it survives a fork. (`diskcache` reads pickles, if a file holds any.)

    Raises:
        DataError: The file is damaged, of another program or version, or cannot be used; the methods raise it, too.
    """

    def __init__(self, path: str | Path, kind: str) -> None:
        self.path = Path(path)
        self._kind = kind
        with self._connection() as connection:
            # An exclusive transaction: of several processes that open a new file, one makes the table.
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version != _VERSION and (version or connection.execute("SELECT 1 FROM sqlite_master").fetchone()):
                    raise self.damaged("it is another program's database, or one of another version")
                connection.execute(f'CREATE TABLE IF NOT EXISTS "{kind}" (key BLOB PRIMARY KEY, value BLOB NOT NULL)')
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            # Readers go on while another process writes. SQLite refuses this at once while another process does it.
            with suppress(sqlite3.OperationalError):
                connection.execute("PRAGMA journal_mode = WAL")

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return those of the keys that are present, with their values."""
        wanted = list(dict.fromkeys(keys))
        present: dict[bytes, bytes] = {}
        with self._connection() as connection:
            for start in range(0, len(wanted), _MOST_PARAMETERS):
                block = wanted[start : start + _MOST_PARAMETERS]
                marks = ",".join("?" * len(block))
                rows = connection.execute(f'SELECT key, value FROM "{self._kind}" WHERE key IN ({marks})', block)
                present.update(rows)
        return present

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """Add entries, all or none of them; the value of a key that is present stays."""
        with self._connection() as connection, connection:
            connection.executemany(f'INSERT OR IGNORE INTO "{self._kind}" VALUES (?, ?)', entries.items())

    def damaged(self, reason: str) -> DataError:
        """Return the error for a file that cannot be used."""
        return DataError(
            f"the cache file {self.path} cannot be used: {reason}; delete it, which only costs computing its values "
            "again, or give another path"
        )

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT_S)) as connection:
                # A power cut may lose the last values, which are then computed again, but not damage the file.
                connection.execute("PRAGMA synchronous = NORMAL")
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise self.damaged(str(error)) from error


def megabytes(number: float) -> int:
    """Return the setting `cache_mb`, in megabytes of 1e6 bytes, as bytes."""
    if not number >= 0:
        raise InputError(f"cache_mb must be at least 0, got {number!r}; 0 turns the cache off")
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
        return sum(size_of(getattr(value, name)) for name in kind.__dataclass_fields__)
    return sys.getsizeof(value)


_PLAIN = frozenset((str, bytes, int, float, bool, type(None)))
