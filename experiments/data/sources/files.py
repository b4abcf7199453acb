"""The files of a source, read row by row: Parquet, JSON lines, JSON, CSV and TSV, also in archives."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Collection, Iterator
from contextlib import closing
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any, cast

from corag.errors import DataError
from corag.optional import require
from experiments.data.sources.fetch import EXTRA, UnfetchedError, brought, digest, fetched, from_web
from experiments.data.sources.source import Inputs, Remote, Row, Source, Url

_ROWS_AT_ONCE = 256
_LONGEST_CELL = 2**27


class Files(Inputs):
    """The files of a source, fetched when they are first read, or taken from a folder.

    Attributes:
        used: What was read: name, address, revision where there is one, and SHA-256 of each file.
    """

    def __init__(self, source: Source, folder: Path | None = None, *, quiet: bool = False) -> None:
        self._source, self._quiet = source, quiet
        self.folder = folder
        self.used: dict[Path, dict[str, str]] = {}
        self._paths: dict[Remote, list[Path]] = {}

    def fetch(self, splits: Collection[str]) -> None:
        """Get the files of some splits and of the parts that all share."""
        for part, remotes in self._source.parts.items():
            if part not in self._source.splits or part in splits:
                for remote in remotes:
                    self.paths(remote)

    def rows(self, part: str) -> Iterator[Row]:
        """Yield the rows of a part; rows of CSV have the name of their file, without its ending, as `file`."""
        for remote in self._source.parts[part]:
            for path in self.paths(remote):
                try:
                    yield from read_rows(path, remote.member)
                except (OSError, EOFError, ValueError, zipfile.BadZipFile, tarfile.TarError, csv.Error) as error:
                    raise self.unreadable(path, error) from error

    def paths(self, remote: Remote) -> list[Path]:
        """Return the files of a remote."""
        if remote not in self._paths:
            if self.folder is None:
                found = fetched(remote, quiet=self._quiet)
            else:
                found = [(path, "brought by hand") for path in brought(remote, self.folder)]
            for path, revision in found:
                self._record(path, remote.address, revision)
            self._paths[remote] = [path for path, _ in found]
        return self._paths[remote]

    def web_file(self, url: str) -> Path:
        """Return a file of the web, whose checksum the caller compares."""
        if self.folder is not None:
            name = url.rpartition("/")[2]
            path = next(iter(sorted(self.folder.rglob(name))), None)
            if path is None:
                raise UnfetchedError(f"{self.folder} has no file {name}", Url(url))
        else:
            path = from_web(url, checked=True, quiet=self._quiet)
        self._record(path, url, "")
        return path

    def unreadable(self, path: Path, error: Exception) -> DataError:
        """Return the error for a file that is damaged."""
        reason = (str(error) or type(error).__name__).splitlines()[0]
        return DataError(f"{path} cannot be read: {reason}; delete it and run the same command again")

    def _record(self, path: Path, address: str, revision: str) -> None:
        if path not in self.used:
            entry = {"file": path.name, "from": address, "revision": revision, "sha256": digest(path)}
            self.used[path] = {name: value for name, value in entry.items() if value}


def read_rows(path: Path, member: str = "") -> Iterator[Row]:
    """Yield the rows of a file, or of the files in an archive whose names match `member`."""
    if not member:
        if path.suffix == ".parquet":
            yield from _parquet(path)
            return
        with cast(IO[bytes], gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as whole:
            yield from _parsed(path.name.removesuffix(".gz"), whole)
        return
    found = False
    for name, file in _members(path, member):
        found = True
        yield from _parsed(name, file)
    if not found:
        raise DataError(f"{path} holds no file {member}; the source has changed, or it is another archive")


def _members(path: Path, member: str) -> Iterator[tuple[str, IO[bytes]]]:
    # Some sources give an archive no ending.
    if path.suffix == ".zip" or zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if fnmatch(name, member):
                    with archive.open(name) as file:
                        yield name, file
        return
    # A stream: an archive may be far larger than what is read of it.
    with tarfile.open(path, "r|*") as tape:
        for entry in tape:
            if entry.isfile() and fnmatch(entry.name, member) and (found := tape.extractfile(entry)) is not None:
                yield entry.name, found


def _parsed(name: str, file: IO[bytes]) -> Iterator[Row]:
    suffix = Path(name).suffix
    if suffix in (".jsonl", ".jsonlines"):
        yield from (json.loads(line) for line in file if line.strip())
    elif suffix == ".json":
        yield from _json(file)
    elif suffix in (".csv", ".tsv"):
        csv.field_size_limit(_LONGEST_CELL)
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        try:
            for row in csv.DictReader(text, delimiter="," if suffix == ".csv" else "\t"):
                yield {**row, "file": Path(name).stem}
        finally:
            # The file is closed by who opened it.
            text.detach()
    else:
        raise DataError(f"{name} is of a kind that is not known: {suffix}")


def _json(file: IO[bytes]) -> Iterator[Row]:
    """Yield the items of an array, or the entries of an object as `key` and `value`."""
    ijson: Any = require("ijson", EXTRA)
    # All files here can look ahead.
    if cast(Any, file).peek(64).lstrip()[:1] == b"[":
        yield from ijson.items(file, "item", use_float=True)
    else:
        yield from ({"key": key, "value": value} for key, value in ijson.kvitems(file, "", use_float=True))


def _parquet(path: Path) -> Iterator[Row]:
    parquet: Any = require("pyarrow.parquet", EXTRA)
    with closing(parquet.ParquetFile(path)) as table:
        for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE):
            yield from batch.to_pylist()
