"""Rows that are too many for memory, in a temporary SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, ValuesView
from contextlib import contextmanager
from threading import Lock

from corag.errors import DataError
from corag.text.documents import Document

# Pages of the database that are held in memory.
_CACHE_KB = 16_384
_BATCH = 1_000


class RepeatedIdError(Exception):
    """An id occurs twice: its name, and the numbers of both rows."""

    def __init__(self, name: str, first: int, second: int) -> None:
        super().__init__(f"id {name!r} occurs twice")
        self.name, self.first, self.second = name, first, second


class DiskRows:
    """Rows of a number, an id and two texts, in the order of their numbers.

    They lie in an unnamed file of SQLite's temporary folder (`SQLITE_TMPDIR`, else `TMPDIR`, else `/var/tmp`), which
    the system deletes with the process, however it ends. At most 16 MB of them are in memory.

    Args:
        rows: Numbers ascend from 0 or more.

    Raises:
        RepeatedIdError: An id occurs twice.
        DataError: The disk is full.
    """

    def __init__(self, rows: Iterable[tuple[int, str, str, str]]) -> None:
        self._lock = Lock()
        # The empty name is that of a temporary database. A lock keeps threads apart.
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        with self._errors():
            self._connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            self._connection.execute("PRAGMA journal_mode = OFF")
            self._connection.execute("PRAGMA synchronous = OFF")
            self._connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, id TEXT, first TEXT, second TEXT)")
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)
            self._connection.execute("COMMIT")
            self._length: int = self._connection.execute("SELECT count(*) FROM rows").fetchone()[0]
            # Sorting ids once is faster than keeping them sorted, and takes no more memory.
            self._connection.execute("CREATE INDEX ids ON rows (id)")
            self._require_unique()

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[tuple[int, str, str, str]]:
        return self.rows()

    def rows(self, start: int = 0) -> Iterator[tuple[int, str, str, str]]:
        """Yield the rows from the number `start` on."""
        last = start - 1
        while batch := self._query("SELECT * FROM rows WHERE number > ? ORDER BY number LIMIT ?", last, _BATCH):
            yield from batch
            last = batch[-1][0]

    def ids(self) -> Iterator[str]:
        """Yield the ids."""
        last, some = -1, "SELECT number, id FROM rows WHERE number > ? ORDER BY number LIMIT ?"
        while batch := self._query(some, last, _BATCH):
            yield from (name for _, name in batch)
            last = batch[-1][0]

    def get(self, name: str) -> tuple[str, str] | None:
        """Return the two texts of an id, or None where it is not there."""
        found = self._query("SELECT first, second FROM rows WHERE id = ?", name)
        return found[0] if found else None

    def __contains__(self, name: object) -> bool:
        return bool(self._query("SELECT 1 FROM rows WHERE id = ?", name))

    def _query(self, statement: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]
        with self._lock, self._errors():
            return self._connection.execute(statement, values).fetchall()

    def _require_unique(self) -> None:
        twice = self._connection.execute(
            "WITH twice AS (SELECT id, min(number) AS sooner FROM rows GROUP BY id HAVING count(*) > 1) "
            "SELECT id, sooner, (SELECT min(number) FROM rows WHERE id = twice.id AND number > sooner) AS later "
            "FROM twice ORDER BY later"
        ).fetchone()
        if twice is not None:
            raise RepeatedIdError(*twice)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise DataError(
                f"the temporary file for rows that do not fit into memory cannot be used: {error}; free some space, or "
                "name a folder with more of it in SQLITE_TMPDIR"
            ) from error


class StoredDocuments(Mapping[str, Document]):
    """The documents of a large corpus by id, in their order, on disk.

    Args:
        lines: Line number and document.

    Raises:
        RepeatedIdError: An id occurs twice; the numbers are those of the lines.
    """

    def __init__(self, lines: Iterable[tuple[int, Document]]) -> None:
        self._rows = DiskRows((number, one.id, one.title, one.text) for number, one in lines)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        return self._rows.ids()

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def values(self) -> ValuesView[Document]:
        """Return the documents, which are read in their order."""
        return _Documents(self, self._rows)

    def __getitem__(self, name: str) -> Document:
        found = self._rows.get(name)
        if found is None:
            raise KeyError(name)
        title, text = found
        return Document(name, text, title)


class _Documents(ValuesView[Document]):
    def __init__(self, documents: StoredDocuments, rows: DiskRows) -> None:
        super().__init__(documents)
        self._rows = rows

    def __iter__(self) -> Iterator[Document]:
        for _, name, title, text in self._rows:
            yield Document(name, text, title)
