"""LanceDB's compiled core, to read tables without the Python package around it.

Importing the package takes 1.2 s of CPU time, most of it for what reading a folder has no use for: the client of its
cloud service, data frames, embedding functions. The core is one compiled module and takes 5 ms. `corag.index.store`
reads local indexes so; all else, writing above all, goes through the package. Both may be in use in one process.

Tables here have of LanceDB's own interface what reading needs, so that either serves. The core is no public interface
of LanceDB: `pyproject.toml` admits only releases that have it in this form, and a test compares both.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from corag.optional import needed

_LOADING = threading.Lock()


class CoreDatabase:
    """The tables in a folder."""

    def __init__(self, folder: Path) -> None:
        core = _module("_lancedb")

        async def connect() -> Any:
            # Behind the address only settings of the cloud service and of object storage.
            return await core.connect(str(folder.absolute()), *[None] * 8, False)

        self._inner = _run(connect)

    def open_table(self, name: str) -> CoreTable:
        """Open a table; `ValueError` where there is none."""
        return CoreTable(_run(self._inner.open_table, name))


class CoreTable:
    """A table, open for reading."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def checkout(self, version: int) -> None:
        """Read the table as it was then."""
        _run(self._inner.checkout, version)

    @property
    def schema(self) -> Any:
        """Its columns, as an Arrow schema."""
        return _run(self._inner.schema)

    def count_rows(self) -> int:
        """Return the number of rows."""
        return int(_run(self._inner.count_rows, None))

    def search(
        self,
        query: NDArray[np.float32] | str | None = None,
        vector_column_name: str = "vector",
        query_type: Literal["auto", "fts"] = "auto",
        fts_columns: str = "text",
    ) -> CoreQuery:
        """Ask for the rows nearest to vectors, `[q, d]`, for those that share words with a text, or for all rows."""
        rows = self._inner.query()
        if query is None:
            return CoreQuery(rows)
        if isinstance(query, str):
            return CoreQuery(rows.nearest_to_text({"query": query, "columns": [fts_columns]}))
        first, *others = map(_to_arrow, query)
        nearest = rows.nearest_to(first)
        for other in others:
            nearest.add_query_vector(other)
        nearest.column(vector_column_name)
        return CoreQuery(nearest)

    def take_row_ids(self, row_ids: Sequence[int]) -> CoreQuery:
        """Ask for the rows with these ids."""
        return CoreQuery(self._inner.take_row_ids(row_ids))


class CoreQuery:
    """A query that is put together step by step; each step is named, and means, as in LanceDB."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def select(self, columns: Sequence[str]) -> Self:
        """Return these columns only."""
        self._inner.select_columns(list(columns))
        return self

    def with_row_id(self, _: bool = True) -> Self:
        """Return the ids of rows, too, as `_rowid`."""
        self._inner.with_row_id()
        return self

    def __getattr__(self, name: str) -> Callable[[Any], CoreQuery]:
        """Return a step with one setting: `limit`, `where`, `distance_type`, `ef`, `refine_factor` and the like."""
        set_ = getattr(self._inner, name)

        def step(setting: Any) -> CoreQuery:
            set_(setting)
            return self

        return step

    def to_batches(self) -> Iterator[Any]:
        """Yield the rows as Arrow batches."""
        yield from _batches(_run(self._inner.execute))

    def to_arrow(self) -> Any:
        """Return the rows as an Arrow table."""
        import pyarrow as pa

        rows = _run(self._inner.execute)
        return pa.Table.from_batches(list(_batches(rows)), rows.schema)


def _batches(rows: Any) -> Iterator[Any]:
    while (batch := _run(_next, rows)) is not None:
        yield batch


async def _next(rows: Any) -> Any | None:
    try:
        return await anext(rows)
    except StopAsyncIteration:
        return None


def _to_arrow(vector: NDArray[np.float32]) -> Any:
    import pyarrow as pa

    # `pa.array` would import pandas, where that is installed.
    return pa.Array.from_buffers(pa.float32(), len(vector), [None, pa.py_buffer(np.ascontiguousarray(vector))])


def _run(function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
    """Return what an asynchronous function returns, which runs in LanceDB's own event loop."""

    async def call() -> Any:
        return await function(*arguments)

    return _module("background_loop").LOOP.run(call())


def _module(name: str) -> ModuleType:
    """Import a module of LanceDB, but not the package; the package, imported later, uses the same one."""
    whole = f"lancedb.{name}"
    with _LOADING:
        if (found := sys.modules.get(whole)) is not None:
            return found
        package = None if "lancedb" in sys.modules else importlib.util.find_spec("lancedb")
        spec = None if package is None else PathFinder.find_spec(whole, package.submodule_search_locations)
        if spec is None or spec.loader is None:
            with needed("lancedb", "index"):
                return importlib.import_module(whole)
        module = importlib.util.module_from_spec(spec)
        sys.modules[whole] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[whole]
            raise
        return module
