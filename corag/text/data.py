"""Data folders: `corpus.jsonl[.gz]` and `queries.jsonl[.gz]`, checked line by line; BEIR folders, too.

docs/data.md describes the fields. A gold entry names a passage, or a span of one as `passage#start-end` (character
offsets). In a BEIR folder (Thakur et al., 2021) each file `qrels/*.tsv` is a split of the questions that it judges;
the others are left out.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from common.checks import well_formed
from common.storage import expanded
from corag.errors import DataError
from corag.memory import cache_folder
from corag.text.documents import Document, part_of, passage
from corag.types import Chunk

logger = logging.getLogger(__name__)

Grades: TypeAlias = Mapping[str, int]
"""Relevance of passages, by id."""
NO_SPLIT = "all"
"""Split of questions that name none."""
_SPAN = re.compile(r"(?P<document>.+)#(?P<start>[0-9]{1,15})-(?P<end>[0-9]{1,15})", re.DOTALL)
_QUERY_FIELDS = {"id", "question", "answers", "gold", "split", "candidates", "grades", "history"}
_IDS = {"id", "gold", "candidates"}

Row = TypeVar("Row")
History = Literal["none", "last", "all"]
"""Which earlier questions of a conversation are put before a question."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question with what is known about its answer.

    Attributes:
        id: Unique name.
        question: The question, as it is written.
        answers: Reference answers, any of which is right.
        gold: Passages, or spans `passage#start-end`, that hold the evidence.
        split: `train`, `dev`, `test`, ...; `NO_SPLIT` where the line names none.
        candidates: The question's own pool of passages, or None.
        extra: Every other field of the line.
        grades: Relevance of passages, by id: above 0 for gold. Empty if only gold is known.
        history: What was said before it in a conversation: questions and answers in turn.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    gold: tuple[str, ...]
    split: str
    candidates: tuple[str, ...] | None
    extra: Mapping[str, Any]
    grades: Mapping[str, int] = field(default_factory=dict)
    history: tuple[str, ...] = ()

    @property
    def evidence(self) -> tuple[str, ...]:
        """Gold, unless the data says that there is no answer: then it only tells the document that is asked about."""
        return self.gold if self.extra.get("answerable", True) else ()

    @property
    def relevance(self) -> Grades:
        """The grade of every gold entry, and of the other passages with a grade."""
        return {**dict.fromkeys(self.gold, 1), **self.grades}

    def after(self, history: History) -> Query:
        """Return the question behind the last question before it, or behind all of them, a line each; or as it is."""
        asked = self.history[::2]
        before = {"none": (), "last": asked[-1:], "all": asked}[history]
        return replace(self, question="\n".join([*before, self.question]))


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A corpus and its questions, in the order of their files; passages by id."""

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
        file = find_file(folder, "queries")
        queries = _judged(folder, file, _read_unique(file, _query))
        for query in queries:
            for name in query.candidates or ():
                if name not in documents:
                    raise DataError(f"{file}, question {query.id!r}: candidate {name!r} is not in the corpus")
        # Corpora are often subsets, which lowers recall.
        lost = [query.id for query in queries if not all(passage_at(gold, documents) for gold in query.gold)]
        if lost:
            warning = "%s: the evidence of %d questions is not in the corpus (first: %s)"
            logger.warning(warning, file, len(lost), lost[0])
        return cls(folder, documents, queries)

    def split(self, name: str, limit: int | None = None) -> list[Query]:
        """Return the first `limit` questions of a split (all without a limit); `DataError` if it has none."""
        chosen = [query for query in self.queries if query.split == name]
        if not chosen:
            sizes = Counter(query.split for query in self.queries)
            listed = ", ".join(f"{split} ({size})" for split, size in sizes.items())
            raise DataError(f"{self.path} has no question of split {name!r}; its splits are {listed}")
        return chosen[:limit]


def read_corpus(path: str | Path) -> dict[str, Document]:
    """Return the documents of a data folder (path or name) by id, in the order of the file."""
    return _read_unique(find_file(find_data(path), "corpus"), _document)


def find_data(name: str | Path) -> Path:
    """Return an existing path as it is; any other name, such as `beir:scifact`, in one of `data_folders`.

    Raises:
        DataError: There is no such folder; the message lists the existing ones.
    """
    if str(name) and (path := expanded(name)).exists():
        return path
    if "://" in str(name):
        raise DataError(f"data is {str(name)!r}, an address; copy it into a local folder, and give that")
    existing = []
    for parent in data_folders():
        if str(name) and (folder := parent / folder_name(str(name))).is_dir():
            return folder
        names = sorted(path.name for path in parent.glob("[!.]*/"))
        existing.append(f"{parent}: {', '.join(names) or 'none'}")
    raise DataError(
        f"there is no file or folder {str(name)!r}; check the path of your documents. Nor is there a data set of that "
        f"name ({'; '.join(existing)}); download one with: corag data get NAME; CORAG_DATA names the folder of yours"
    )


def folder_name(name: str) -> str:
    """Return the name of the folder of a data set: that of `beir:scifact` is `beir-scifact`."""
    return re.sub(r"[:/\\]+", "-", name)


def data_cache() -> Path:
    """Return the folder in the cache that holds data folders."""
    return cache_folder() / "data"


def data_folders() -> list[Path]:
    """Return the folders in which names are looked up: `$CORAG_DATA`, then the cache."""
    chosen = os.environ.get("CORAG_DATA")
    return [*([expanded(chosen)] if chosen else []), data_cache()]


def find_file(folder: Path, stem: str) -> Path:
    """Return `stem.jsonl` or `stem.jsonl.gz` of a data folder."""
    for name in (f"{stem}.jsonl", f"{stem}.jsonl.gz"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} has neither {stem}.jsonl nor {stem}.jsonl.gz; a data folder needs one of them")


def read_lines(file: Path, parse: Callable[[str], Row]) -> Iterator[tuple[int, Row]]:
    """Yield (line number, parsed line) of a file, which is gzipped if its name ends in `.gz`; empty lines are skipped.

    Raises:
        DataError: The file cannot be read, or `parse` raised `ValueError`; the message names file and line.
    """
    number = 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, parse(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{file}, line {number}: not UTF-8 ({error}); save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        what = "not JSON: " if isinstance(error, json.JSONDecodeError | RecursionError) else ""
        raise DataError(f"{file}, line {number}: {what}{error}") from error
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{file}, after line {number}: cannot be read ({error}); the file is damaged") from error


def _read_unique(file: Path, parse: Callable[[str], Row]) -> dict[str, Row]:
    """Return the rows of a file by their `id`."""
    rows: dict[str, Row] = {}
    for number, row in read_lines(file, parse):
        name: str = row.id  # type: ignore[attr-defined]
        if name in rows:
            raise DataError(f"{file}, line {number}: id {name!r} is already used in an earlier line")
        rows[name] = row
    if not rows:
        raise DataError(f"{file} is empty; it needs at least one line with a JSON object")
    return rows


def is_evidence(chunk: Chunk, gold: str) -> bool:
    """Tell whether a chunk is the passage that a gold entry names, was cut from it, or holds half of its span."""
    return holds_evidence([chunk], gold)


def holds_evidence(chunks: Sequence[Chunk], gold: str) -> bool:
    """Tell whether one of the chunks is evidence, or they hold half of a gold span together, as sentences of it do."""
    if any(gold in (chunk.id, chunk.metadata.get("document", chunk.id)) for chunk in chunks):
        return True
    parts = [_shared(chunk, gold) for chunk in chunks]
    length = max((of_gold for _, of_gold in parts), default=0)
    return 0 < length <= 2 * len(set().union(*(shared for shared, _ in parts)))


def _shared(chunk: Chunk, gold: str) -> tuple[range, int]:
    """Return the characters of a gold span that a chunk of its document has, and its length; else nothing, and 0."""
    match = _SPAN.fullmatch(gold)
    known = match is not None and chunk.metadata.keys() >= {"start", "end"}
    if match is None or not known or match["document"] != chunk.metadata.get("document", chunk.id):
        return range(0), 0
    start, end = int(match["start"]), int(match["end"])
    return range(max(start, int(chunk.metadata["start"])), min(end, int(chunk.metadata["end"]))), end - start


def passage_of(gold: str, documents: Mapping[str, Document]) -> str | None:
    """Return the id of the passage that a gold entry names, whole or as a span; None if it is not in the corpus."""
    match = _SPAN.fullmatch(gold)
    names = (gold, match["document"] if match else "")
    return next((name for name in names if name in documents), None)


def passage_at(name: str, documents: Mapping[str, Document]) -> Chunk | None:
    """Return the passage, or the span of one, that a gold entry names; None if it is not in the corpus."""
    if (document := documents.get(name)) is not None:
        return passage(document)
    if (match := _SPAN.fullmatch(name)) is None or (document := documents.get(match["document"])) is None:
        return None
    start, end = int(match["start"]), int(match["end"])
    if not start < end <= len(document.text):
        return None
    return replace(part_of(document, start, end), id=name)


def _judged(folder: Path, file: Path, queries: Mapping[str, Query]) -> tuple[Query, ...]:
    """Return the questions with judgements in a BEIR folder, once for each split; all if it has no judgements."""
    judged = []
    files = sorted(path for path in folder.glob("qrels/*") if path.name.endswith((".tsv", ".tsv.gz")))
    for qrels in files:
        for name, grades in _read_qrels(qrels).items():
            if name not in queries:
                raise DataError(f"{qrels}: question {name!r} is not in {file.name}")
            gold = tuple(passage for passage, grade in grades.items() if grade > 0)
            judged.append(replace(queries[name], gold=gold, grades=grades, split=qrels.name.split(".")[0]))
    return tuple(judged) if files else tuple(queries.values())


def _read_qrels(file: Path) -> dict[str, dict[str, int]]:
    """Return the grades of passages by question; the first line may be a heading."""
    grades: dict[str, dict[str, int]] = {}
    for number, parts in read_lines(file, lambda line: [part.strip() for part in line.split("\t")]):
        if len(parts) != 3 or not all(parts) or (number > 1 and not re.fullmatch(r"[+-]?\d+", parts[2])):
            raise DataError(f"{file}, line {number}: expected question-id, passage-id and a whole number between tabs")
        query, name, grade = parts
        if not re.fullmatch(r"[+-]?\d+", grade):
            continue
        if grades.setdefault(query, {}).setdefault(name, int(grade)) != int(grade):
            raise DataError(f"{file}, line {number}: a second grade of passage {name!r} for question {query!r}")
    if not grades:
        raise DataError(f"{file} has no judgements")
    return grades


def _document(line: str) -> Document:
    row = _json_object(line)
    return Document(_text(row, "id"), _text(row, "text", empty=True), _text(row, "title", "", empty=True))


def _query(line: str) -> Query:
    row = _json_object(line, text="question")
    grades = row.get("grades") or {}
    if not isinstance(grades, dict) or any(type(grade) is not int for grade in grades.values()):
        raise ValueError(f"field 'grades' is {grades!r:.80}; it must map ids to whole numbers")
    gold = _texts(row, "gold")
    if row.get("gold") is None:
        gold = tuple(name for name, grade in grades.items() if grade > 0)
    return Query(
        id=_text(row, "id"),
        question=_text(row, "question"),
        answers=_texts(row, "answers"),
        gold=tuple(dict.fromkeys(gold)),
        split=_text(row, "split", NO_SPLIT),
        candidates=None if row.get("candidates") is None else tuple(dict.fromkeys(_texts(row, "candidates"))),
        extra={name: value for name, value in row.items() if name not in _QUERY_FIELDS},
        grades=grades,
        history=_texts(row, "history"),
    )


def _json_object(line: str, **names: str) -> Mapping[str, Any]:
    """Return the JSON object of a line; one of BEIR under our names of its fields."""
    row: Any = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError(f"a JSON {type(row).__name__}; every line must be one JSON object")
    if "id" in row or "_id" not in row:
        return row
    ours = {"_id": "id", **names}
    return {ours.get(str(name), str(name)): value for name, value in row.items()}


def _text(row: Mapping[str, Any], name: str, default: str | None = None, *, empty: bool = False) -> str:
    value = default if row.get(name) is None else row[name]
    if value is None:
        raise ValueError(f"field {name!r} is missing; the fields here are {', '.join(row) or '(none)'}")
    text = _string(name, value)
    if not empty and not text.strip():
        raise ValueError(f"field {name!r} is empty")
    return text


def _texts(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = row.get(name) or []
    if not isinstance(values, list):
        raise ValueError(f"field {name!r} is {values!r:.80}; it must be a list of strings")
    return tuple(_string(name, value) for value in values)


def _string(name: str, value: object) -> str:
    # Ids are often written as numbers.
    if name in _IDS and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"field {name!r} holds {value!r:.80}; it must be a string")
    if well_formed(value) != value:
        raise ValueError(f"field {name!r} holds a lone surrogate; write valid Unicode")
    return value
