"""What is computed once: a byte-bounded LRU in memory, shared or private; texts in a file; the cache folder."""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from common.checks import check_range
from corag.errors import DataError
from corag.forks import lock_for_forks, renewed_lock

ENTRY_BYTES = 256
"""Overhead of an entry beside key and value, measured on 50,000 small ones."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Capacity:
    """The bytes that one or more `LRU` caches keep together; the least recently used entries of all go first."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        # (owner, key) -> (value, bytes), the least recently used first.
        self.entries: OrderedDict[tuple[Any, Hashable], tuple[Any, int]] = OrderedDict()
        self.lock = lock_for_forks()
        with _REGISTERING:
            _CAPACITIES.add(self)


class LRU(Generic[Key, Value]):
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

    def __reduce__(self) -> tuple[Any, ...]:
        return LRU, (self.capacity.max_bytes,)  # empty, as other processes compute their own

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

    def get_many(self, keys: Sequence[Key], compute_missing: Callable[[list[Key]], Iterable[Value]]) -> list[Value]:
        """Return the value of each key, computing and keeping the missing ones, in their order and each once."""
        values = self.get(keys)
        if missing := [key for key in dict.fromkeys(keys) if key not in values]:
            fresh = dict(zip(missing, compute_missing(missing), strict=True))
            self.put(fresh)
            values |= fresh
        return [values[key] for key in keys]

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
_REGISTERING = renewed_lock()


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


def clear_caches() -> None:
    """Empty all caches of this process, so that a benchmark can measure a first question."""
    with _REGISTERING:
        for capacity in _CAPACITIES:
            with capacity.lock:
                capacity.entries.clear()
                capacity.used_bytes = 0


class TextStore:
    """Texts by key in a file of JSON lines, where each is kept at once, so that an interrupted run pays for none twice.

    The first text of a key stays. Threads may share it; of two processes that add to one file, neither sees the other's
    texts. Lines that hold no text, as one that a kill has cut off, are passed over.

    Raises:
        DataError: The file cannot be read or written; so does `put`.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, lock_for_forks()
        self._texts: dict[str, str] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = path.read_bytes().split(b"\n") if path.exists() else []
        except OSError as error:
            raise self._unusable(error) from error
        for line in lines:
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                row = json.loads(line)
                self._texts.setdefault(str(row["key"]), str(row["text"]))

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        return self._texts.get(key)

    def put(self, key: str, text: str) -> None:
        """Add a text, unless the key has one."""
        with self._lock:
            if key in self._texts:
                return
            try:
                with self._path.open("ab") as file:
                    file.write(f"\n{json.dumps({'key': key, 'text': text})}".encode())  # ends a line that was cut off
            except OSError as error:
                raise self._unusable(error) from error
            self._texts[key] = text

    def _unusable(self, error: OSError) -> DataError:
        return DataError(
            f"the cache file {self._path} cannot be used: {error}; check permissions and free space, or delete it, "
            "which only costs computing its texts again"
        )


def cache_folder() -> Path:
    """Return the folder for files that can be made again: `$CORAG_CACHE`, else the user's cache folder."""
    if chosen := os.environ.get("CORAG_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "corag"


def megabytes(number: float) -> int:
    """Return the setting `cache_mb`, in megabytes of 1e6 bytes, as bytes."""
    check_range("cache_mb", number, 0, 10**9, "0 turns the cache off")
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
