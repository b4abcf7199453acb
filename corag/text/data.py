"""Data folders: `corpus.jsonl[.gz]` and `queries.jsonl[.gz]`, checked line by line, as a stream.

corpus: `{"id", "title", "text"}`. queries: `{"id", "question", "answers": [...], "gold": [ids], "split"}`
and, where a question comes with its own pool, `"candidates": [ids]`. A gold entry names a passage, or a span
of one as `passage#start-end` (character offsets) when passages are long. Ids may be written as numbers.
Other fields of a question are kept and ignored.
"""

from __future__ import annotations

import gzip
import json
import logging
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from corag.errors import DataError
from corag.text.disk import RepeatedIdError, StoredDocuments
from corag.text.documents import Document
from corag.text.find import find_data
from corag.types import Chunk

logger = logging.getLogger(__name__)

Row = TypeVar("Row")
Rows = TypeVar("Rows", bound=Mapping[str, Any])

_SPAN = re.compile(r"(?P<document>.+)#(?P<start>\d+)-(?P<end>\d+)", re.DOTALL)
IN_MEMORY_BYTES = 64 * 2**20
"""A corpus whose file is larger lies on disk while it is used, in `StoredDocuments`."""
NO_SPLIT = "all"
"""Split of questions that name none."""
_IDS = {"id", "gold", "candidates"}
_QUERY_FIELDS = {"id", "question", "answers", "gold", "split", "candidates"}


@dataclass(frozen=True, slots=True)
class Query:
    """A question with what is known about its answer.

    Attributes:
        id: Unique name.
        question: The question.
        answers: Reference answers, any of which is right; may be empty.
        gold: Passages, or spans `passage#start-end`, that hold the evidence; may be empty.
        split: `train`, `dev`, `test`, ...; `NO_SPLIT` where the line names none.
        candidates: The question's own pool of passages, or None.
        extra: Every other field of the line.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    gold: tuple[str, ...]
    split: str
    candidates: tuple[str, ...] | None
    extra: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A corpus and its questions.

    Attributes:
        path: The folder.
        documents: Passages by id, in the order of the file; see `read_corpus`.
        queries: Questions in the order of the file.
    """

    path: Path
    documents: Mapping[str, Document]
    queries: tuple[Query, ...]

    @classmethod
    def open(cls, path: str | Path) -> DataFolder:
        """Read a data folder, given by path or name; see `find_data`.

        Raises:
            DataError: A file is missing or empty, or a line breaks a rule; the message names file and line.
        """
        folder = find_data(path)
        documents = read_corpus(folder)
        file = _find(folder, "queries")
        queries = _unique(file, _read(file, _query))
        for query in queries.values():
            for name in query.candidates or ():
                if name not in documents:
                    raise DataError(
                        f"{file}, question {query.id!r}: candidate {name!r} is not in the corpus; add the "
                        "passage to the corpus or remove it from the question"
                    )
        # Corpora are often subsets. Such evidence cannot be found, which lowers recall.
        lost = [query.id for query in queries.values() if not all(_exists(gold, documents) for gold in query.gold)]
        if lost:
            logger.warning(
                "%s: the evidence of %d questions is not in the corpus (first: %s)", file, len(lost), lost[0]
            )
        return cls(folder, documents, tuple(queries.values()))

    def split(self, name: str, limit: int | None = None) -> list[Query]:
        """Return the first `limit` questions of a split (all without a limit).

        Raises:
            DataError: The split has no question; all splits are listed with their sizes.
        """
        chosen = [query for query in self.queries if query.split == name]
        if not chosen:
            sizes = Counter(query.split for query in self.queries)
            listed = ", ".join(f"{split} ({size})" for split, size in sizes.items())
            raise DataError(f"{self.path} has no question of split {name!r}; its splits are {listed}")
        return chosen[:limit]


def read_corpus(path: str | Path) -> Mapping[str, Document]:
    """Read the corpus of a data folder (path or name); a missing, empty or broken file is a `DataError`.

    Returns:
        Documents by id, in the order of the file: in memory, or on disk where the file has `IN_MEMORY_BYTES` or more.
    """
    file = _find(find_data(path), "corpus")
    lines = _read(file, _document)
    if file.stat().st_size < IN_MEMORY_BYTES:
        return _unique(file, lines)
    try:
        return _filled(file, StoredDocuments(lines))
    except RepeatedIdError as error:
        raise _repeated(file, error.second, error.name, error.first) from error


def is_evidence(chunk: Chunk, gold: str) -> bool:
    """Tell whether a chunk counts as evidence for a gold entry.

    It does if it is that passage, was cut from it, or holds at least half of that span.
    """
    document = chunk.metadata.get("document", chunk.id)
    if gold in (chunk.id, document):
        return True
    match = _SPAN.fullmatch(gold)
    if match is None or match["document"] != document or not chunk.metadata.keys() >= {"start", "end"}:
        return False
    start, end = int(match["start"]), int(match["end"])
    shared = min(end, int(chunk.metadata["end"])) - max(start, int(chunk.metadata["start"]))
    return shared > 0 and 2 * shared >= end - start


def passage_of(gold: str, documents: Mapping[str, Document]) -> str | None:
    """Return the id of the passage that a gold entry names, whole or as a span; None if it is not in the corpus."""
    if gold in documents:
        return gold
    match = _SPAN.fullmatch(gold)
    return match["document"] if match is not None and match["document"] in documents else None


def _exists(gold: str, documents: Mapping[str, Document]) -> bool:
    match = _SPAN.fullmatch(gold)
    return gold in documents or (
        match is not None
        and match["document"] in documents
        and 0 <= int(match["start"]) < int(match["end"]) <= len(documents[match["document"]].text)
    )


def _find(folder: Path, stem: str) -> Path:
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give a folder with corpus.jsonl and queries.jsonl (or .jsonl.gz)")
    for name in (f"{stem}.jsonl", f"{stem}.jsonl.gz"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} has neither {stem}.jsonl nor {stem}.jsonl.gz; a data folder needs one of them")


def _read(file: Path, parse: Callable[[Mapping[str, Any]], Row]) -> Iterator[tuple[int, Row]]:
    """Yield (line number, parsed line); empty lines are skipped."""
    number = 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, parse(_decode(line))
    except _LineError as error:
        raise DataError(f"{file}, line {number}: {error}") from error
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{file}, after line {number}: cannot be read ({error}); the file is damaged, write it again"
        ) from error


class _LineError(Exception):
    """What is wrong with a line; the caller adds file and number."""


def _decode(line: bytes) -> Mapping[str, Any]:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _LineError(f"not UTF-8 ({error}); save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise _LineError(f"not JSON ({error}); every line must be one JSON object") from error
    if not isinstance(row, dict):
        raise _LineError(f"a JSON {type(row).__name__}; every line must be one JSON object")
    return row


def _text(row: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a string field, or its default where it is absent or null."""
    value = default if row.get(name) is None else row[name]
    if value is None:
        raise _LineError(f"field {name!r} is missing; the fields here are {', '.join(row) or '(none)'}")
    return _checked(name, value, "a string")


def _texts(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a field with a list of strings; empty where it is absent or null."""
    values = [] if row.get(name) is None else row[name]
    if not isinstance(values, list):
        raise _LineError(f"field {name!r} is {values!r:.80}; it must be a list of strings")
    return tuple(_checked(name, value, "a list of strings") for value in values)


def _checked(name: str, value: object, rule: str) -> str:
    # Ids are often written as numbers.
    if name in _IDS and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise _LineError(f"field {name!r} holds {value!r:.80}; it must be {rule}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _LineError(
            f"field {name!r} holds a lone surrogate at character {error.start}; write valid Unicode"
        ) from error
    return value


def _id(row: Mapping[str, Any]) -> str:
    name = _text(row, "id")
    if not name:
        raise _LineError("field 'id' is empty; every line needs a unique id")
    return name


def _document(row: Mapping[str, Any]) -> Document:
    return Document(_id(row), _text(row, "text"), _text(row, "title", default=""))


def _query(row: Mapping[str, Any]) -> Query:
    question = _text(row, "question")
    if not question.strip():
        raise _LineError("field 'question' is empty; write the question or remove the line")
    return Query(
        id=_id(row),
        question=question,
        answers=_texts(row, "answers"),
        gold=tuple(dict.fromkeys(_texts(row, "gold"))),
        split=_text(row, "split", default=NO_SPLIT),
        candidates=None if row.get("candidates") is None else tuple(dict.fromkeys(_texts(row, "candidates"))),
        extra={name: value for name, value in row.items() if name not in _QUERY_FIELDS},
    )


def _unique(file: Path, rows: Iterator[tuple[int, Row]]) -> dict[str, Row]:
    """Return rows by their id, and refuse repeated ids and empty files."""
    found: dict[str, Row] = {}
    lines: dict[str, int] = {}
    for number, row in rows:
        name: str = row.id  # type: ignore[attr-defined]
        if name in found:
            raise _repeated(file, number, name, lines[name])
        found[name] = row
        lines[name] = number
    return _filled(file, found)


def _repeated(file: Path, number: int, name: str, first: int) -> DataError:
    return DataError(f"{file}, line {number}: id {name!r} is already used in line {first}; ids must be unique")


def _filled(file: Path, rows: Rows) -> Rows:
    if not rows:
        raise DataError(f"{file} is empty; it needs at least one line with a JSON object")
    return rows
