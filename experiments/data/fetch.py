"""The files of public data sets: from the hub by its own client, from the web by pooch, or brought by hand."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any, cast

from corag.errors import DataError
from corag.optional import require
from corag.text.visible import one_line
from corag.writing import cache_folder
from experiments.run.journal import digest

EXTRA = "data"
Row = Mapping[str, Any]

_SHARD = re.compile(r"(?P<stem>.*)-\d{5}-of-(?P<count>\d{5})(?P<rest>\D.*)")
_ROWS_AT_ONCE = 256
_LONGEST_CELL = 2**27


class UnfetchedError(DataError):
    """A file cannot be fetched, and is not in the folder of files brought by hand."""


@dataclass(frozen=True, slots=True)
class Hub:
    """Files of a data set on the Hugging Face hub: a `pattern` of their names, and of the `member`s of an archive."""

    repo: str
    pattern: str
    revision: str = "main"
    member: str = ""

    @property
    def address(self) -> str:
        """Where a person finds the files."""
        return f"https://huggingface.co/datasets/{self.repo}/tree/{self.revision.replace('/', '%2F')}"

    def fetch(self, *, quiet: bool) -> tuple[list[Path], str]:
        """Return the files in the cache of the hub's client, which fetches what it lacks, and their commit."""
        hub, errors = require("huggingface_hub", EXTRA), require("huggingface_hub.errors", EXTRA)
        if quiet:
            require("huggingface_hub.utils", EXTRA).disable_progress_bars()
        try:
            snapshot = Path(
                hub.snapshot_download(
                    self.repo, repo_type="dataset", revision=self.revision, allow_patterns=self.pattern
                )
            )
        except errors.GatedRepoError as error:
            raise DataError(
                f"{self.repo} is only for users who accept its terms: accept them at {self.address}, log in with "
                "`hf auth login`, and run the same command again"
            ) from error
        except Exception as error:  # the client lets errors of its HTTP library through
            raise UnfetchedError(f"{self.repo} ({self.pattern}) cannot be fetched: {_first_line(error)}") from error
        files = [path for path in sorted(snapshot.rglob("*")) if path.is_file()]
        return [path for path in files if fnmatch(path.relative_to(snapshot).as_posix(), self.pattern)], snapshot.name


@dataclass(frozen=True, slots=True)
class Url:
    """A file on the web, and a pattern of the `member`s of an archive."""

    address: str
    member: str = ""

    @property
    def pattern(self) -> str:
        """Name of the file."""
        return self.address.rpartition("/")[2]

    def fetch(self, *, quiet: bool) -> tuple[list[Path], str]:
        """Return the file in the cache, fetched if it is not there; it has no revision."""
        pooch = require("pooch", EXTRA)
        pooch.get_logger().setLevel("WARNING")
        try:
            path = Path(
                pooch.retrieve(
                    self.address,
                    None,
                    fname=f"{hashlib.sha256(self.address.encode()).hexdigest()[:8]}-{self.pattern}",
                    path=cache_folder() / "downloads",
                    downloader=pooch.HTTPDownloader(progressbar=not quiet, timeout=30),
                )
            )
        except (OSError, ValueError) as error:
            raise UnfetchedError(f"{self.address} cannot be fetched: {_first_line(error)}") from error
        if not path.stat().st_size:
            path.unlink()
            raise UnfetchedError(f"{self.address} cannot be fetched: the server sent an empty file")
        return [path], ""


Remote = Hub | Url


class Files:
    """The files of each part of a data set, fetched when they are first read, or taken from a folder.

    `used` is what was read: name, address, revision if there is one, and SHA-256 of each file.
    """

    def __init__(
        self, parts: Mapping[str, tuple[Remote, ...]], folder: Path | None = None, *, quiet: bool = False
    ) -> None:
        self._parts, self._folder, self._quiet = parts, folder, quiet
        self._paths: dict[Remote, list[Path]] = {}
        self.used: list[dict[str, str]] = []

    def rows(self, part: str) -> Iterator[Row]:
        """Yield the rows of a part; `file` of those of CSV and Markdown is the name of their file, without ending."""
        for remote in self._parts[part]:
            for path in self.get(remote):
                try:
                    yield from read_rows(path, remote.member)
                except (OSError, EOFError, ValueError, zipfile.BadZipFile, tarfile.TarError, csv.Error) as error:
                    raise DataError(
                        f"{path} cannot be read: {_first_line(error)}; delete it and run the same command again"
                    ) from error

    def get(self, remote: Remote) -> list[Path]:
        """Return some files; `UnfetchedError` if they cannot be fetched, `DataError` if the hub asks for consent."""
        if remote not in self._paths:
            if self._folder is None:
                paths, revision = remote.fetch(quiet=self._quiet)
            else:
                paths, revision = _brought(remote.pattern, self._folder), "brought by hand"
            _check_whole(paths, f"{remote.address if self._folder is None else self._folder} has no", remote.pattern)
            self._paths[remote] = paths
            for path in paths:
                entry = {"file": path.name, "from": remote.address, "revision": revision, "sha256": digest(path)}
                if entry not in self.used:
                    self.used.append({name: value for name, value in entry.items() if value})
        return self._paths[remote]


def _brought(pattern: str, folder: Path) -> list[Path]:
    files = sorted(folder.rglob(pattern))
    # The files may be in one folder, if their names alone tell which they are.
    if not files and not (name := pattern.rpartition("/")[2]).startswith("*"):
        files = sorted(folder.rglob(name))
    return files


def _check_whole(files: list[Path], lacks: str, pattern: str) -> None:
    """Refuse an empty list, and one that lacks some of the shards whose number is in their names."""
    names = {file.name for file in files}
    if not files:
        raise UnfetchedError(f"{lacks} file {pattern}")
    # A pattern such as *-00000-of-00007.parquet asks for one alone.
    for match in filter(None, map(_SHARD.fullmatch, names if len(names) > 1 else ())):
        shards = (f"{match['stem']}-{n:05}-of-{match['count']}{match['rest']}" for n in range(int(match["count"])))
        if missing := [shard for shard in shards if shard not in names]:
            raise UnfetchedError(f"{lacks} {missing[0]}")


def _first_line(error: BaseException) -> str:
    return one_line((str(error).strip() or type(error).__name__).splitlines()[0])[:500]


def read_rows(path: Path, member: str = "") -> Iterator[Row]:
    """Yield the rows of a file, or of the files in an archive whose names match `member`, without loading it whole."""
    if path.suffix == ".parquet":
        with closing(require("pyarrow.parquet", EXTRA).ParquetFile(path)) as table:
            for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE):
                yield from batch.to_pylist()
        return
    empty = True
    for name, file in _members(path, member):
        empty = False
        yield from _parsed(name, file)
    if empty:
        raise DataError(f"{path} has no file {member}; the source has changed, or it is another archive")


def _members(path: Path, member: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and content of the file itself, or of the files in an archive whose names match `member`."""
    if not member:
        with cast(IO[bytes], gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as whole:
            yield path.name.removesuffix(".gz"), whole
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in filter(lambda name: fnmatch(name, member), sorted(archive.namelist())):
                with archive.open(name) as file:
                    yield name, file
    else:
        # A stream: an archive may be far larger than what is read of it.
        with tarfile.open(path, "r|*") as tape:
            for entry in tape:
                if fnmatch(entry.name, member) and (extracted := tape.extractfile(entry)) is not None:
                    yield entry.name, extracted


def _parsed(name: str, file: IO[bytes]) -> Iterator[Row]:
    stem, suffix = Path(name).stem, Path(name).suffix
    if suffix in (".jsonl", ".jsonlines"):
        yield from (json.loads(line) for line in file if line.strip())
    elif suffix == ".json":
        ijson: Any = require("ijson", EXTRA)
        # The items of an array, or the entries of an object. All files here can look ahead.
        if cast(Any, file).peek(64).lstrip()[:1] == b"[":
            yield from ijson.items(file, "item", use_float=True)
        else:
            yield from ({"key": key, "value": value} for key, value in ijson.kvitems(file, "", use_float=True))
    elif suffix in (".csv", ".tsv"):
        csv.field_size_limit(_LONGEST_CELL)
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        try:
            for row in csv.DictReader(text, delimiter="," if suffix == ".csv" else "\t"):
                yield {**row, "file": stem}
        finally:
            text.detach()  # its owner closes the file
    elif suffix == ".md":
        yield {"file": stem, "text": file.read().decode()}
    else:
        raise DataError(f"{name} is of an unknown kind: {suffix}")
