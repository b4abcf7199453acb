"""Keys and values, both bytes, in a table of a SQLite file that several processes may share."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from corag.errors import DataError

_VERSION = 2
_BUSY_TIMEOUT_S = 60.0
_PAUSE_S = 0.01
# SQLite's primary result code: what is wrong. The higher bits say where.
_PRIMARY = 0xFF
# Parameters of one statement; SQLite allows at least 999.
_MOST_PARAMETERS = 500


class SQLiteTable:
    """A table of a file.

    Every call opens the file anew, so a table may be shared by threads and survives a fork.

    Args:
        path: The file; made, with its folder, when it is missing.
        kind: Name of the table.

    Raises:
        DataError: The file is damaged, of another program or version, or cannot be used; the methods raise it, too.
    """

    def __init__(self, path: str | Path, kind: str) -> None:
        self.path = Path(path)
        self._kind = kind
        with self._connection() as connection:
            version, tables = self._contents(connection)
            if version != _VERSION or self._kind not in tables:
                self._create(connection)
            if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                self._write_ahead(connection)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return those of the keys that are there, with their values."""
        found: dict[bytes, bytes] = {}
        with self._connection() as connection:
            for start in range(0, len(keys), _MOST_PARAMETERS):
                block = keys[start : start + _MOST_PARAMETERS]
                marks = ",".join("?" * len(block))
                found.update(connection.execute(f'SELECT key, value FROM "{self._kind}" WHERE key IN ({marks})', block))
        return found

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """Add entries, all or none of them; the value of a key that is there stays."""
        with self._connection() as connection, connection:
            connection.executemany(f'INSERT OR IGNORE INTO "{self._kind}" VALUES (?, ?)', entries.items())

    def keys(self) -> set[bytes]:
        """Return all keys."""
        with self._connection() as connection:
            return {key for (key,) in connection.execute(f'SELECT key FROM "{self._kind}"')}

    def delete(self, keys: Iterable[bytes]) -> None:
        """Delete entries, all or none of them."""
        with self._connection() as connection, connection:
            connection.executemany(f'DELETE FROM "{self._kind}" WHERE key = ?', ((key,) for key in keys))

    def unusable(self, reason: str) -> DataError:
        """Return the error for a file that cannot be used."""
        return DataError(
            f"the cache file {self.path} cannot be used: {reason}; delete it, which only costs computing its values "
            "again, or give another path"
        )

    @staticmethod
    def _contents(connection: sqlite3.Connection) -> tuple[int, set[str]]:
        """Return the version of the file, and the names of its tables."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return version, {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}

    def _create(self, connection: sqlite3.Connection) -> None:
        # An exclusive transaction: of several processes that open a new file, one makes the table.
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            version, tables = self._contents(connection)
            if version != _VERSION and (version or tables):
                raise self.unusable("it is another program's database, or one of another version")
            if self._kind not in tables:
                connection.execute(f'CREATE TABLE "{self._kind}" (key BLOB PRIMARY KEY, value BLOB NOT NULL)')
                connection.execute(f"PRAGMA user_version = {_VERSION}")

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """Let readers go on while another process writes; the file remembers it.

        The busy timeout does not cover this change: SQLite refuses it at once while another process makes it. Processes
        that open a new file together have to ask again.
        """
        deadline = time.monotonic() + _BUSY_TIMEOUT_S
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
            with closing(sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT_S)) as connection:
                # A power cut may lose the last values, which are then computed again, but not damage the file.
                connection.execute("PRAGMA synchronous = NORMAL")
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise self.unusable(str(error)) from error
