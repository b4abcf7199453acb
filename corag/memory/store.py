"""Values kept on disk between runs, in one SQLite file that several processes may share.

Knows neither models nor texts: keys in, values out. About 60 bytes a value; the file grows without bound, and may be
deleted at any time while nobody uses it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from corag.errors import DataError

_VERSION = 1
# How long to wait for another process that writes.
_PATIENCE_S = 60.0
_PAUSE_S = 0.01
# The part of an error code that says what is wrong; the rest says where.
_PRIMARY = 0xFF


class Entry(NamedTuple):
    """What is kept under a key.

    Attributes:
        value: What a reranker said.
        truncated: Whether the text was longer than its window.
    """

    value: float
    truncated: bool


class ValueStore:
    """A file of values.

    Every call opens the file anew, so a store may be shared by threads and survives a fork.

    Args:
        path: The file; made, with its folder, when it is not there.

    Raises:
        DataError: The file is damaged, not a store, of another version, or cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with self._connection() as connection:
            if self._version(connection) != _VERSION:
                self._create(connection)
            if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                self._write_ahead(connection)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Entry]:
        """Return what is kept under those of the keys that are there.

        Raises:
            DataError: The file cannot be read.
        """
        query = 'SELECT value, truncated FROM "values" WHERE key = ?'
        with self._connection() as connection:
            rows = [(key, connection.execute(query, (key,)).fetchone()) for key in keys]
        return {key: Entry(row[0], bool(row[1])) for key, row in rows if row is not None}

    def put(self, entries: Mapping[bytes, Entry]) -> None:
        """Keep entries, all or none of them; what is there already stays.

        Raises:
            DataError: The file cannot be written.
        """
        with self._connection() as connection, connection:
            connection.executemany(
                'INSERT OR IGNORE INTO "values" VALUES (?, ?, ?)',
                [(key, entry.value, entry.truncated) for key, entry in entries.items()],
            )

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return int(version)

    def _create(self, connection: sqlite3.Connection) -> None:
        # One transaction that nobody else may write beside: of several processes one makes the table.
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            version = self._version(connection)
            (num_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if version == _VERSION:
                return
            if (version, num_tables) != (0, 0):
                raise self._unusable("it is another program's database, or a store of another version")
            connection.execute(
                'CREATE TABLE "values" '
                "(key BLOB PRIMARY KEY, value REAL NOT NULL, truncated INTEGER NOT NULL) WITHOUT ROWID"
            )
            connection.execute(f"PRAGMA user_version = {_VERSION}")

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """Let readers go on while another process writes; the file remembers it.

        SQLite refuses the change at once, without the wait that it grants every other statement, while another process
        makes the same change: several that open a new store together have to ask again.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & _PRIMARY != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=_PATIENCE_S)) as connection:
                # A power cut may lose the last values, which are then computed again, but not damage the file.
                connection.execute("PRAGMA synchronous = NORMAL")
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(str(error)) from error

    def _unusable(self, reason: str) -> DataError:
        return DataError(
            f"the store of values {self.path} cannot be used: {reason}; delete the file, which only costs computing "
            "its values again, or give another path"
        )
