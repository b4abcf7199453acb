"""A bounded cache: the least recently used entry goes first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from corag.errors import InputError

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """A mapping that keeps at most `size` entries.

    Raises:
        InputError: The size is negative.
    """

    def __init__(self, size: int) -> None:
        if size < 0:
            raise InputError(f"a cache of {size} entries is impossible; 0 turns it off")
        self.size = size
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, key: Key) -> Value:
        self._entries.move_to_end(key)
        return self._entries[key]

    def __setitem__(self, key: Key, value: Value) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self.size:
            self._entries.popitem(last=False)
