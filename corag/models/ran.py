"""Which models ran, where and how: one record for every result."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from corag.ambient import Ambient
from corag.models.devices import hardware_of
from corag.models.runtime import Place


@dataclass(frozen=True, slots=True)
class Ran:
    """A model that ran, as results record it.

    Attributes:
        model: Its name, or its folder.
        device: Its device.
        hardware: Name of its maker, or of the processor.
        precision: Of its large matrix products.
        backend: What ran it, and which release.
    """

    model: str
    device: str
    hardware: str
    precision: str
    backend: str


def ran(model: str, where: Place) -> Ran:
    """Return the record of a model that runs at a place."""
    return Ran(model, where.device, hardware_of(where.device), where.precision, _release(where.backend))


@functools.cache
def _release(backend: str) -> str:
    return f"{backend} {importlib.metadata.version(backend)}"


_RECORDS: Ambient[tuple[dict[Ran, None], ...]] = Ambient(())


@contextmanager
def recording() -> Iterator[Callable[[], list[dict[str, str]]]]:
    """Record which models run while the block is open.

    Yields:
        A function that returns a record for each model that ran so far, in the order of their first runs; see `Ran`.
    """
    seen: dict[Ran, None] = {}
    with _RECORDS.set((*_RECORDS.get(), seen)):
        yield lambda: [asdict(row) for row in seen]


def ran_in_all(records: Iterable[Iterable[Mapping[str, str]]]) -> list[dict[str, str]]:
    """Return each model of several records once, in the order of their names."""
    return [dict(row) for row in sorted({tuple(row.items()) for record in records for row in record})]


def note(row: Ran) -> None:
    """Note that a model ran, in every record that is open."""
    for seen in _RECORDS.get():
        seen.setdefault(row)
