"""Reading tables by LanceDB's compiled module: `import lancedb` takes 1.3 s of CPU time, this 0.03 s.

Most of the package are clients of remote catalogues. Its own classes call the same functions, which
`lancedb/_lancedb.pyi` declares; the dependency is pinned to a minor version. Indexes are written by `lancedb` itself.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corag.optional import needed

if TYPE_CHECKING:
    import pyarrow


class StoredTable:
    """A version of a table, open for reading; errors are those of LanceDB."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def checkout(self, version: int) -> None:
        """Read this version."""
        _run(self._inner.checkout, version)

    def count_rows(self) -> int:
        """Return the number of rows."""
        return int(_run(self._inner.count_rows, None))

    def rows(self, columns: Sequence[str]) -> pyarrow.Table:
        """Return all rows, with their ids in this version, `_rowid`."""
        return _executed(self._inner.query(), columns)

    def rows_at(self, row_ids: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return rows, in any order, by their ids, which are among the columns returned."""
        return _executed(self._inner.take_row_ids(list(row_ids)), columns).to_pylist() if row_ids else []

    def nearest(
        self, vectors: NDArray[np.float32], limit: int, where: str | None, columns: Sequence[str], **settings: int
    ) -> list[dict[str, Any]]:
        """Return the rows nearest to vectors, `[q, d]`, by cosine, with `_distance` and, if q > 1, `query_index`.

        Settings are those of a search in partitions, without which they do nothing.
        """
        import pyarrow

        # Not `pyarrow.array`, which would import pandas.
        made = [pyarrow.py_buffer(np.ascontiguousarray(vector, dtype=np.float32)) for vector in vectors]
        kind, length = pyarrow.float32(), vectors.shape[1]
        first, *others = [pyarrow.Array.from_buffers(kind, length, [None, buffer]) for buffer in made]
        query = self._inner.query().nearest_to(first)
        for other in others:
            query.add_query_vector(other)
        query.column("vector")
        query.distance_type("cosine")
        for name, value in settings.items():
            getattr(query, name)(value)
        return _best(query, limit, where, ["_distance", *columns])

    def matching(self, words: str, limit: int, where: str | None) -> list[dict[str, Any]]:
        """Return the rows whose text has some of the words, with their BM25, `_score`."""
        # Between quotation marks, as which this is not taken, words would be searched as a phrase.
        query = self._inner.query().nearest_to_text({"query": f"{words} ", "columns": ["text"]})
        return _best(query, limit, where, ["_score"])


class Database:
    """A database, open for reading."""

    def __init__(self, address: str) -> None:
        # Neither a key, a region and hosts of LanceDB's cloud, nor settings.
        self._inner = _run(_compiled("_lancedb").connect, address, *[None] * 8)

    def open_table(self, name: str) -> StoredTable:
        """Open the latest version of a table; `ValueError` if there is none."""
        return StoredTable(_run(self._inner.open_table, name))


def _best(query: Any, limit: int, where: str | None, columns: Sequence[str]) -> list[dict[str, Any]]:
    query.limit(limit)
    if where is not None:
        query.where(where)
    rows: list[dict[str, Any]] = _executed(query, columns).to_pylist()
    return rows


def _executed(query: Any, columns: Sequence[str]) -> pyarrow.Table:
    import pyarrow

    async def execute() -> pyarrow.Table:
        stream = await query.execute()
        return pyarrow.Table.from_batches([batch async for batch in stream], stream.schema)

    query.select_columns(list(columns))
    query.with_row_id()
    return _run(execute)


def _run(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    async def result() -> Any:
        return await function(*arguments)  # called where a loop runs

    return _compiled("background_loop").LOOP.run(result())


@cache
def _compiled(name: str) -> Any:
    """Return a module of LanceDB without its package."""
    full = f"lancedb.{name}"
    if full not in sys.modules:
        with needed("lancedb", "index"):
            if (package := find_spec("lancedb")) is None:
                raise ImportError("No module named 'lancedb'")
            spec: Any = PathFinder.find_spec(full, package.submodule_search_locations)
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
        sys.modules.setdefault(full, module)
    return sys.modules[full]
