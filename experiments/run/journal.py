"""A journal of finished units of work, so that a run that was killed goes on where it stopped."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from corag.errors import DataError
from corag.text.visible import to_json

PACKAGES = (
    "corag", "numpy", "torch", "transformers", "openvino", "lancedb", "rouge-score", "ir-measures", "bm25s",
    "scikit-learn",
)  # fmt: skip
"""What figures depend on."""


def versions(*others: str) -> dict[str, str]:
    """Return the versions of Python, of the installed packages that figures depend on, and of others."""
    found = {"python": platform.python_version()}
    for package in (*PACKAGES, *others):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def commit() -> str:
    """Return the commit of the source tree, marked when it has changes; `unknown` outside a checkout."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def fingerprint(value: Any) -> str:
    """Return a short hash of anything that JSON can say."""
    text = json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Journal(AbstractContextManager["Journal"]):
    """Finished units by key, in a file of JSON lines at `path`, or with None in memory alone.

    The first line holds `work`, a hash of everything that the results depend on. Each further line is a unit; it is on
    disk when `add` returns. A line torn by a kill is cut off on the next start, and its unit is done again.

    Raises:
        DataError: The file is of other work, or no journal.
    """

    def __init__(self, path: Path | None, work: str) -> None:
        self.path = path
        self.units: dict[str, Any] = {}
        self._file: BinaryIO | None = None
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes() if path.exists() else b""
        whole = content.rfind(b"\n") + 1
        if whole:
            self._read(content[:whole], work)
        self._file = path.open("ab")
        self._file.truncate(whole)
        if not whole:
            self._write({"work": work})

    def _read(self, content: bytes, work: str) -> None:
        header, *lines = content.splitlines()
        try:
            written = json.loads(header)["work"]
            self.units = {row["key"]: row["unit"] for row in map(json.loads, lines)}
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{self.path} is not a journal ({error}); delete it to start anew") from error
        if written != work:
            raise DataError(
                f"{self.path} belongs to a run with other settings, data or versions; delete it to start "
                "anew, or choose another output"
            )

    def add(self, key: str, unit: Mapping[str, Any] | list[Any]) -> None:
        """Record one finished unit."""
        self._write({"key": key, "unit": unit})
        self.units[key] = unit

    def _write(self, row: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(to_json(row).encode("utf-8") + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self.close()
            raise DataError(
                f"{self.path} cannot be written: {error}; free some space and run the same command again to resume"
            ) from error

    def remove(self) -> None:
        """Close and delete the journal: its work is finished."""
        self.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; the journal stays on disk."""
        # What a failed write left in the buffer would fail a second time.
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()


RESULT, TABLE, PAGE = b'{\n  "data": ', b"PAR1", b"<!doctype html>"
"""How the files begin that commands write: a result, a label table, a report."""
_ENDINGS = {RESULT: ".json", TABLE: ".parquet", PAGE: ".html"}


def output_file(name: str, begins: bytes) -> Path:
    """Return the path of a file that a command will write; a `DataError` before the work if it may not.

    A file that begins otherwise than with `begins` was not written by such a command, may be one of its inputs, and is
    not overwritten. One folder may be new; more are a mistyped path.
    """
    path, content = Path(name), b""
    if not path.name or path.is_dir():
        raise DataError(f"out: expected the name of a file, got {name!r}; use runs/result.json")
    if path.suffix != (ending := _ENDINGS[begins]):
        raise DataError(f"out must end in {ending}, got {name!r}; give {path.with_suffix(ending)}")
    if not path.parent.parent.is_dir():
        raise DataError(f"out is {name!r}, but there is no folder {path.parent.parent}; make it, or check the path")
    if path.exists():
        with path.open("rb") as file:
            content = file.read(len(begins))
    if content not in (b"", begins):
        raise DataError(f"out is {name!r}, a file that this command did not write; give another name, or delete it")
    return path
