"""A bounded cache: the least recently used entry goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from corag.errors import InputError

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Keeps at most `size` entries; may be shared by threads.

    Raises:
        InputError: The size is negative.
    """

    def __init__(self, size: int) -> None:
        if size < 0:
            raise InputError(f"a cache of {size} entries is impossible; 0 turns it off")
        self.size = size
        self._entries: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """Return those of the keys that are kept, with their values."""
        with self._lock:
            found = {key: self._entries[key] for key in keys if key in self._entries}
            for key in found:
                self._entries.move_to_end(key)
        return found

    def put(self, entries: Mapping[Key, Value]) -> None:
        """Keep entries, and drop what was used longest ago."""
        with self._lock:
            self._entries.update(entries)
            for key in entries:
                self._entries.move_to_end(key)
            while len(self._entries) > self.size:
                self._entries.popitem(last=False)
