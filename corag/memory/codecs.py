"""How values are written to disk as bytes. No pickle."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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
