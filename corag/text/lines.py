"""Text files read line by line: what is wrong with a line is said with its file and number."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from corag.errors import DataError

Row = TypeVar("Row")

_IDS = {"id", "gold", "candidates"}


class LineError(Exception):
    """What is wrong with a line; `read_lines` adds file and number."""


def find_file(folder: Path, stem: str) -> Path:
    """Return `stem.jsonl` or `stem.jsonl.gz` of a data folder; a missing one is a `DataError`."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give a folder with corpus.jsonl and queries.jsonl (or .jsonl.gz)")
    for name in (f"{stem}.jsonl", f"{stem}.jsonl.gz"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} has neither {stem}.jsonl nor {stem}.jsonl.gz; a data folder needs one of them")


def read_lines(file: Path, parse: Callable[[bytes], Row]) -> Iterator[tuple[int, Row]]:
    """Yield (line number, parsed line) of a file, which is gzipped if its name ends in `.gz`; empty lines are skipped.

    Raises:
        DataError: The file cannot be read, or `parse` raised `LineError`; the message names file and line.
    """
    number = 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, parse(line)
    except LineError as error:
        raise DataError(f"{file}, line {number}: {error}") from error
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{file}, after line {number}: cannot be read ({error}); the file is damaged, write it again"
        ) from error


def read_unique(file: Path, parse: Callable[[bytes], Row]) -> dict[str, Row]:
    """Return the rows of a file by their `id`; a repeated id and an empty file are a `DataError`."""
    found: dict[str, Row] = {}
    lines: dict[str, int] = {}
    for number, row in read_lines(file, parse):
        name: str = row.id  # type: ignore[attr-defined]
        if name in found:
            raise repeated(file, number, name, lines[name])
        found[name] = row
        lines[name] = number
    if not found:
        raise empty(file)
    return found


def repeated(file: Path, number: int, name: str, before: int) -> DataError:
    """Return the error for an id that two lines have."""
    return DataError(f"{file}, line {number}: id {name!r} is already used in line {before}; ids must be unique")


def empty(file: Path) -> DataError:
    """Return the error for a file without a line."""
    return DataError(f"{file} is empty; it needs at least one line with a JSON object")


def utf8(line: bytes) -> str:
    """Return a line as text, without a byte order mark."""
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LineError(f"not UTF-8 ({error}); save the file as UTF-8") from error


def json_object(line: bytes) -> Mapping[str, Any]:
    """Return the JSON object of a line."""
    text = utf8(line)
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LineError(f"not JSON ({error}); every line must be one JSON object") from error
    if not isinstance(row, dict):
        raise LineError(f"a JSON {type(row).__name__}; every line must be one JSON object")
    return row


def text_field(row: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a string field, or its default where it is absent or null."""
    value = default if row.get(name) is None else row[name]
    if value is None:
        raise LineError(f"field {name!r} is missing; the fields here are {', '.join(row) or '(none)'}")
    return _checked(name, value, "a string")


def texts_field(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a field with a list of strings; empty where it is absent or null."""
    values = [] if row.get(name) is None else row[name]
    if not isinstance(values, list):
        raise LineError(f"field {name!r} is {values!r:.80}; it must be a list of strings")
    return tuple(_checked(name, value, "a list of strings") for value in values)


def id_field(row: Mapping[str, Any]) -> str:
    """Return the id of a row."""
    name = text_field(row, "id")
    if not name:
        raise LineError("field 'id' is empty; every line needs a unique id")
    return name


def grades_field(row: Mapping[str, Any], name: str) -> dict[str, int]:
    """Return a field that maps ids to whole numbers; empty where it is absent or null."""
    grades = {} if row.get(name) is None else row[name]
    if not isinstance(grades, dict) or any(type(grade) is not int for grade in grades.values()):
        raise LineError(f"field {name!r} is {grades!r:.80}; it must map ids to whole numbers")
    return dict(grades)


def _checked(name: str, value: object, rule: str) -> str:
    # Ids are often written as numbers.
    if name in _IDS and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise LineError(f"field {name!r} holds {value!r:.80}; it must be {rule}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise LineError(
            f"field {name!r} holds a lone surrogate at character {error.start}; write valid Unicode"
        ) from error
    return value
