"""The files of public data sets, fetched by fsspec, which keeps them.

A place is a URL of fsspec: `hf://datasets/NAME@REVISION/PATTERN`, `https://...`, or for files in an archive
`zip://PATTERN::https://...`. `datasets` would read most of them, by fsspec, too; but it guesses the types of CSV cells,
does not tell from which file a row is, and keeps a second copy of everything.
"""

from __future__ import annotations

import csv
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from corag.cli.console import progress
from corag.errors import DataError
from corag.memory import cache_folder
from corag.optional import require
from corag.text.visible import one_line

EXTRA = "data"
Row = Mapping[str, Any]

_ROWS_AT_ONCE = 256
_LONGEST_CELL = 2**27


class Files:
    """The files of each part of a data set, given as places."""

    def __init__(self, parts: Mapping[str, Sequence[str]], *, quiet: bool = False) -> None:
        self._parts, self._quiet = parts, quiet
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
                        f"{file.path} of {place} cannot be read: {_first_line(error)}; delete the folder "
                        f"{_downloads()}, and run the same command again"
                    ) from error

    def get(self, place: str) -> list[Any]:
        """Return the files of a place, fetched; `DataError` if that is not possible."""
        if place not in self._opened:
            try:
                self._opened[place] = self._open(place)
                if not self._opened[place]:
                    raise FileNotFoundError("there is no such file")
            except (OSError, ValueError, zipfile.BadZipFile, tarfile.TarError) as error:
                raise DataError(
                    f"{place} cannot be fetched: {_first_line(error)}; run the same command where there is a network "
                    "(after `hf auth login` if its terms have to be accepted), and copy the folder that it writes"
                ) from error
        return self._opened[place]

    def _open(self, place: str) -> list[Any]:
        *inner, source = place.split("::")
        settings: dict[str, Any] = {"filecache": {"cache_storage": str(_downloads())}}
        settings |= {"tar": {"compression": "gzip"}} if place.startswith("tar://") else {}
        with progress(f"fetch {source.rpartition('/')[2]}", quiet=self._quiet):
            url = "::".join([*inner, f"filecache::{source}"])
            found: list[Any] = require("fsspec", EXTRA).open_files(url, "rb", compression="infer", **settings)
            for file in () if inner else found:
                with file:  # fetches it
                    pass
        return found


def _downloads() -> Path:
    return cache_folder() / "downloads"


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
