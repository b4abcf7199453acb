"""Data folders: `corpus.jsonl[.gz]` and `queries.jsonl[.gz]`, checked line by line; BEIR folders, too.

corpus: `{"id", "title", "text"}`. queries: `{"id", "question", "answers": [...], "gold": [ids], "split"}`
and, where a question comes with its own pool, `"candidates": [ids]`. A gold entry names a passage, or a span
of one as `passage#start-end` (character offsets) when passages are long. Ids may be written as numbers.
`"grades": {id: grade}` grades passages by relevance; without `gold`, those above 0 are the gold. Other fields of a
question are kept and ignored.

In a BEIR folder (Thakur et al., 2021) `_id` stands for `id`, `text` for `question`, and `qrels/*.tsv` hold grades: each
file is a split of the questions that it judges, and the others are left out.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corag.errors import DataError
from corag.text.disk import RepeatedIdError, StoredDocuments
from corag.text.documents import Document, passage, with_title
from corag.text.find import find_data
from corag.text.lines import (
    LineError,
    empty,
    find_file,
    grades_field,
    id_field,
    json_object,
    read_lines,
    read_unique,
    repeated,
    text_field,
    texts_field,
)
from corag.text.trec import Grades, read_qrels
from corag.types import Chunk

logger = logging.getLogger(__name__)

_SPAN = re.compile(r"(?P<document>.+)#(?P<start>[0-9]{1,15})-(?P<end>[0-9]{1,15})", re.DOTALL)
IN_MEMORY_BYTES = 128 * 2**20
"""A larger corpus lies on disk while it is used, in `StoredDocuments`."""
_GZIP_RATIO = 5
NO_SPLIT = "all"
"""Split of questions that name none."""
_QUERY_FIELDS = {"id", "question", "answers", "gold", "split", "candidates", "grades"}


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
        grades: Relevance of passages, by id: above 0 for gold, 0 and less for passages judged to be of no use. Empty
            where only gold is known; each piece of gold then has the grade 1.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    gold: tuple[str, ...]
    split: str
    candidates: tuple[str, ...] | None
    extra: Mapping[str, Any]
    grades: Mapping[str, int] = field(default_factory=dict)

    @property
    def relevance(self) -> Grades:
        """The grade of every gold entry, and of the passages that were judged beside."""
        return {**dict.fromkeys(self.gold, 1), **self.grades}


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
        file = find_file(folder, "queries")
        queries = _judged(folder, file, read_unique(file, _query))
        for query in queries:
            for name in query.candidates or ():
                if name not in documents:
                    raise DataError(
                        f"{file}, question {query.id!r}: candidate {name!r} is not in the corpus; add the "
                        "passage to the corpus or remove it from the question"
                    )
        # Corpora are often subsets. Such evidence cannot be found, which lowers recall.
        lost = [query.id for query in queries if not all(_exists(gold, documents) for gold in query.gold)]
        if lost:
            logger.warning(
                "%s: the evidence of %d questions is not in the corpus (first: %s)", file, len(lost), lost[0]
            )
        return cls(folder, documents, queries)

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
        Documents by id, in the order of the file: in memory, or on disk where they have about `IN_MEMORY_BYTES` or
        more.
    """
    file = find_file(find_data(path), "corpus")
    if file.stat().st_size * (_GZIP_RATIO if file.suffix == ".gz" else 1) < IN_MEMORY_BYTES:
        return read_unique(file, _document)
    try:
        documents = StoredDocuments(read_lines(file, _document))
    except RepeatedIdError as error:
        raise repeated(file, error.second, error.name, error.first) from error
    if not documents:
        raise empty(file)
    return documents


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


def passage_at(name: str, documents: Mapping[str, Document]) -> Chunk | None:
    """Return the passage, or the span of one, that a name such as a gold entry stands for; None if there is none."""
    if (document := documents.get(name)) is not None:
        return passage(document)
    if (match := _SPAN.fullmatch(name)) is None or not _exists(name, documents):
        return None
    document, start, end = documents[match["document"]], int(match["start"]), int(match["end"])
    metadata = {"document": document.id, "title": document.title, "start": start, "end": end}
    return Chunk(name, with_title(document.title, document.text[start:end]), metadata)


def _judged(folder: Path, file: Path, queries: Mapping[str, Query]) -> tuple[Query, ...]:
    """Return the questions that the judgements of a folder speak of, once for each split; all where it has none."""
    found = []
    files = sorted(one for one in folder.glob("qrels/*") if one.name.endswith((".tsv", ".tsv.gz")))
    for qrels in files:
        for name, grades in read_qrels(qrels).items():
            if name not in queries:
                raise DataError(
                    f"{qrels}: question {name!r} is not in {file.name}; add it there, or remove its judgements"
                )
            gold = tuple(passage for passage, grade in grades.items() if grade > 0)
            found.append(replace(queries[name], gold=gold, grades=grades, split=qrels.name.split(".")[0]))
    return tuple(found) if files else tuple(queries.values())


def _document(line: bytes) -> Document:
    row = _own_names(json_object(line))
    return Document(id_field(row), text_field(row, "text"), text_field(row, "title", default=""))


def _query(line: bytes) -> Query:
    row = _own_names(json_object(line), text="question")
    question = text_field(row, "question")
    if not question.strip():
        raise LineError("field 'question' is empty; write the question or remove the line")
    grades = grades_field(row, "grades")
    gold = (
        [name for name, grade in grades.items() if grade > 0] if row.get("gold") is None else texts_field(row, "gold")
    )
    return Query(
        id=id_field(row),
        question=question,
        answers=texts_field(row, "answers"),
        gold=tuple(dict.fromkeys(gold)),
        split=text_field(row, "split", default=NO_SPLIT),
        candidates=None if row.get("candidates") is None else tuple(dict.fromkeys(texts_field(row, "candidates"))),
        extra={name: value for name, value in row.items() if name not in _QUERY_FIELDS},
        grades=grades,
    )


def _own_names(row: Mapping[str, Any], **others: str) -> Mapping[str, Any]:
    """Return a line of BEIR under our names of its fields; any other as it is."""
    if "id" in row or "_id" not in row:
        return row
    names = {"_id": "id", **others}
    return {names.get(name, name): value for name, value in row.items()}
