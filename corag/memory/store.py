"""What memories keep in RAM: at most so many bytes, together or each for itself, with counts of what was found.

for use in corag.memory.usage():
    print(use)          # passages: 5,120 of 6,400 found (80%), 1,310 entries, 262.4 of 400 MB
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

from corag.errors import InputError


@dataclass(slots=True)
class Use:
    """How values of one kind were used.

    Attributes:
        kind: What they are.
        found: How often a value was asked for and was there.
        missing: How often it was not, so that it was computed, or read from a file.
        entries: Values that are kept.
        nbytes: Bytes of these and of their keys.
        max_bytes: The most bytes of all kinds that are kept in the same place.
    """

    kind: str
    found: int = 0
    missing: int = 0
    entries: int = 0
    nbytes: int = 0
    max_bytes: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of what was asked for that was there, in [0, 1]; 0 where nothing was asked for."""
        return self.found / max(1, self.found + self.missing)

    def __str__(self) -> str:
        return (
            f"{self.kind}: {self.found:,} of {self.found + self.missing:,} found ({self.hit_rate:.0%}), "
            f"{self.entries:,} entries, {self.nbytes / 1e6:,.1f} of {self.max_bytes / 1e6:,.0f} MB"
        )


class Space(NamedTuple):
    """Whose keys these are: those of another kind, or another owner, are others."""

    kind: str
    owner: int

    @classmethod
    def of(cls, kind: str, owner: object) -> Space:
        """Return the space of an owner, who may go while entries are kept; his number is nobody else's."""
        with _ONE_CHANGES:
            return cls(kind, _OWNERS.setdefault(owner, next(_NUMBERS)))


@dataclass(slots=True, weakref_slot=True, eq=False)
class Store:
    """Keeps values until their bytes exceed a bound; then the least recently used go. Threads may share it.

    Attributes:
        max_bytes: The bound, at least 0, which keeps nothing.

    Raises:
        InputError: It is negative.
    """

    max_bytes: int
    _entries: OrderedDict[tuple[Space, Hashable], tuple[Any, int]] = field(default_factory=OrderedDict)
    _uses: dict[str, Use] = field(default_factory=dict)
    _used: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.max_bytes < 0:
            raise InputError(f"a cache of {self.max_bytes} bytes is impossible; 0 turns it off")
        with _ONE_CHANGES:
            _STORES.add(self)

    def get(self, space: Space, keys: Iterable[Hashable]) -> dict[Hashable, Any]:
        """Return those of the distinct keys that are here, with their values, which now are the last to go."""
        found, missing = {}, 0
        with self._lock:
            for key in keys:
                entry = self._entries.get((space, key))
                if entry is None:
                    missing += 1
                else:
                    found[key] = entry[0]
                    self._entries.move_to_end((space, key))
            use = self._use(space)
            use.found += len(found)
            use.missing += missing
        return found

    def put(self, space: Space, sized: Mapping[Hashable, tuple[Any, int]]) -> None:
        """Keep values, given with their sizes in bytes; one that is here already is replaced."""
        with self._lock:
            for key, entry in sized.items():
                self._drop((space, key))
                self._entries[space, key] = entry
                self._count(space, 1, entry[1])
            while self._used > self.max_bytes:
                self._drop(next(iter(self._entries)))

    def clear(self) -> None:
        """Keep nothing of what is here, and count from zero."""
        with self._lock:
            self._entries.clear()
            self._uses.clear()
            self._used = 0

    def uses(self) -> list[Use]:
        """Return how values of each kind were used."""
        with self._lock:
            return [replace(use, max_bytes=self.max_bytes) for use in self._uses.values()]

    def _drop(self, key: tuple[Space, Hashable]) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self._count(key[0], -1, -entry[1])

    def _count(self, space: Space, entries: int, nbytes: int) -> None:
        use = self._use(space)
        use.entries += entries
        use.nbytes += nbytes
        self._used += nbytes

    def _use(self, space: Space) -> Use:
        return self._uses.setdefault(space.kind, Use(space.kind))


_STORES: weakref.WeakSet[Store] = weakref.WeakSet()
_SHARED: weakref.WeakValueDictionary[int, Store] = weakref.WeakValueDictionary()
_OWNERS: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
_NUMBERS = count()
_ONE_CHANGES = threading.RLock()


def shared_store(max_bytes: int) -> Store:
    """Return the store that all who ask for this size share, for as long as one of them is there."""
    with _ONE_CHANGES:
        store = _SHARED.get(max_bytes)
        if store is None:
            store = _SHARED[max_bytes] = Store(max_bytes)
        return store


def usage() -> list[Use]:
    """Return how the caches of this process were used, those with the most bytes first.

    What was never asked for anything is left out.
    """
    uses = [use for store in _stores() for use in store.uses() if use.kind]
    return sorted(uses, key=lambda use: (-use.nbytes, use.kind))


def forget() -> None:
    """Empty all caches of this process and count from zero, as benchmarks of a first question want it."""
    for store in _stores():
        if all(use.kind for use in store.uses()):
            store.clear()


def _stores() -> list[Store]:
    with _ONE_CHANGES:
        return list(_STORES)
