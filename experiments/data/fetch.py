"""The files of public data sets: fetched by fsspec, which keeps them, or brought by hand.

A place is a URL of fsspec: `hf://datasets/NAME@REVISION/PATTERN`, `https://...`, or for files in an archive
`zip://PATTERN::https://...`.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from corag.cli.console import progress
from corag.errors import DataError
from corag.optional import require
from corag.text.visible import one_line
from corag.writing import cache_folder

EXTRA = "data"
Row = Mapping[str, Any]

_SHARD = re.compile(r"(?P<stem>.*)-\d{5}-of-(?P<count>\d{5})\D.*")
_ROWS_AT_ONCE = 256
_LONGEST_CELL = 2**27


class UnfetchedError(DataError):
    """A file cannot be fetched, or is not in the folder of files brought by hand."""


class Files:
    """The files of each part of a data set, given as places, or in a folder."""

    def __init__(self, parts: Mapping[str, Sequence[str]], folder: Path | None = None, *, quiet: bool = False) -> None:
        self._parts, self._folder, self._quiet = parts, folder, quiet
        self._opened: dict[str, list[Any]] = {}

    def rows(self, part: str) -> Iterator[Row]:
        """Yield the rows of a part; `file` of those of CSV and Markdown is the name of their file, without ending."""
        for place in self._parts[part]:
            for file in self.get(place):
                try:
                    with file as content:
                        yield from read_rows(Path(str(file.path)), content)
                except (OSError, EOFError, ValueError, zipfile.BadZipFile, tarfile.TarError, csv.Error) as error:
                    raise DataError(
                        f"{file.path} of {place} cannot be read: {_first_line(error)}; delete it, or the folder "
                        f"{_downloads()}, and run the same command again"
                    ) from error

    def get(self, place: str) -> list[Any]:
        """Return the files of a place, fetched; `UnfetchedError` if that is not possible."""
        if place not in self._opened:
            try:
                self._opened[place] = self._open(place)
            except (OSError, ValueError, zipfile.BadZipFile, tarfile.TarError) as error:
                raise UnfetchedError(f"{place} cannot be fetched: {_first_line(error)}") from error
            if not self._opened[place]:
                raise UnfetchedError(f"{self._folder or place} has no file {pattern_of(place)}")
        return self._opened[place]

    def _open(self, place: str) -> list[Any]:
        fsspec = require("fsspec", EXTRA)
        *inner, source = place.split("::")
        if self._folder is None:
            sources, kept = [f"filecache::{source}"], {"filecache": {"cache_storage": str(_downloads())}}
        else:
            sources, kept = list(map(str, _brought(pattern_of(place), self._folder))), {}
        archive = {"tar": {"compression": "gzip"}} if place.startswith("tar://") else {}
        with progress(f"fetch {pattern_of(place)}", quiet=self._quiet or self._folder is not None):
            found = [
                file
                for one in sources
                for file in fsspec.open_files("::".join([*inner, one]), "rb", compression="infer", **kept, **archive)
            ]
            for file in () if inner else found:
                with file:  # fetches it
                    pass
        return found


def _downloads() -> Path:
    return cache_folder() / "downloads"


def pattern_of(place: str) -> str:
    """Return the name of the file, or the pattern of names, that a place holds for a person to bring."""
    source = place.rpartition("::")[2]
    if source.startswith("hf://"):
        return "/".join(source.split("/")[5:])
    return source.rpartition("/")[2]


def address_of(place: str) -> str:
    """Return where a person finds the files of a place."""
    source = place.rpartition("::")[2]
    if not source.startswith("hf://"):
        return source
    name, _, revision = "/".join(source.split("/")[2:5]).partition("@")
    return f"https://huggingface.co/{name}/tree/{revision or 'main'}"


def _brought(pattern: str, folder: Path) -> list[Path]:
    """Return the files in a folder; of numbered shards all have to be there."""
    files = sorted(folder.rglob(pattern))
    # The files may be in one folder, if their names alone tell which they are.
    if not files and not (name := pattern.rpartition("/")[2]).startswith("*"):
        files = sorted(folder.rglob(name))
    # A pattern such as *-00000-of-00007.parquet asks for one alone.
    shards = [match for file in files if len(files) > 1 and (match := _SHARD.fullmatch(file.name))]
    for match in shards:
        if sum(one["stem"] == match["stem"] for one in shards) != int(match["count"]):
            raise UnfetchedError(f"{folder} lacks some of the {match['count']} files of {match['stem']}")
    return files


def _first_line(error: BaseException) -> str:
    return one_line((str(error).strip() or type(error).__name__).splitlines()[0])[:500]


def read_rows(name: Path, content: Any) -> Iterator[Row]:
    """Yield the rows of a file of some name, given its content, without loading it whole."""
    name = name.with_suffix("") if name.suffix == ".gz" else name
    suffix = name.suffix
    if suffix == ".parquet":
        with closing(require("pyarrow.parquet", EXTRA).ParquetFile(content)) as table:
            for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE):
                yield from batch.to_pylist()
    elif suffix in (".jsonl", ".jsonlines"):
        yield from (json.loads(line) for line in content if line.strip())
    elif suffix == ".json":
        ijson: Any = require("ijson", EXTRA)
        is_array = content.read(64).lstrip()[:1] == b"["
        content.seek(0)
        if is_array:
            yield from ijson.items(content, "item", use_float=True)
        else:
            yield from ({"key": key, "value": value} for key, value in ijson.kvitems(content, "", use_float=True))
    elif suffix in (".csv", ".tsv"):
        csv.field_size_limit(_LONGEST_CELL)
        text = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
        for row in csv.DictReader(text, delimiter="," if suffix == ".csv" else "\t"):
            yield {**row, "file": name.stem}
        text.detach()  # its owner closes the file
    elif suffix == ".md":
        yield {"file": name.stem, "text": content.read().decode()}
    else:
        raise DataError(f"{name} is of an unknown kind: {suffix}")
