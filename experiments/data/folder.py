"""Writing a data folder as a stream: no corpus is held in memory, and a folder appears when it is whole."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from common.checks import well_formed
from common.storage import write_atomically
from corag.errors import DataError
from corag.text.data import Query, find_data, find_file
from corag.text.documents import Document
from corag.text.visible import to_json

CORPUS_FILE, QUERIES_FILE, SOURCE_FILE = "corpus.jsonl.gz", "queries.jsonl.gz", "source.json"
_LEVEL = 5
"""Of gzip; higher levels take twice the time for a few percent."""


def distinct(texts: Iterable[str | None]) -> tuple[str, ...]:
    """Return texts in their order, each once, without white space around them and without empty ones."""
    return tuple(dict.fromkeys(text.strip() for text in texts if text and text.strip()))


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a data set, and the passages that come with it; answers, gold and passages are kept once each.

    Attributes:
        gold: Ids of the passages that hold the evidence, or spans `id#start-end`.
        passages: Passages that this question brings to the corpus; those of other questions may be the same.
        pool: Whether these passages are the question's candidates.
        extra: Further fields of the line, JSON values.
    """

    id: str
    question: str
    answers: Sequence[str | None] = ()
    gold: Sequence[str] = ()
    passages: Sequence[Document] = ()
    pool: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "answers", distinct(self.answers))
        object.__setattr__(self, "gold", tuple(dict.fromkeys(self.gold)))
        object.__setattr__(self, "passages", tuple({passage.id: passage for passage in self.passages}.values()))


class FolderWriter(ExitStack):
    """Writes the corpus and the questions of a data folder, each passage and each question once.

    The same passages and questions in the same order give the same bytes. `num_repeated` counts questions left out
    because their id had come before.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.num_passages = self.num_repeated = 0
        self.num_questions: dict[str, int] = {}
        # On disk: a corpus may have millions of ids.
        self._ids = sqlite3.connect("")
        self._ids.executescript("PRAGMA journal_mode = OFF; CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID")
        self._corpus = self.enter_context(_zipped(folder / CORPUS_FILE))
        self._queries = self.enter_context(_zipped(folder / QUERIES_FILE))

    def passage(self, passage: Document) -> None:
        """Write a passage if it is new."""
        if self._is_new(f"passage {passage.id}"):
            row = {"id": passage.id, "title": passage.title, "text": passage.text}
            self._corpus.write(_line(row).encode())
            self.num_passages += 1

    def question(self, question: Question, split: str) -> None:
        """Write a question and the passages that it brings."""
        if not self._is_new(f"question {question.id}"):
            self.num_repeated += 1
            return
        for passage in question.passages:
            self.passage(passage)
        answers, gold = list(question.answers), list(question.gold)
        row = {"id": question.id, "question": question.question, "answers": answers, "gold": gold, "split": split}
        pool = {"candidates": [passage.id for passage in question.passages]} if question.pool else {}
        self._queries.write(_line({**question.extra, **row, **pool}).encode())
        self.num_questions[split] = self.num_questions.get(split, 0) + 1

    def _is_new(self, name: str) -> bool:
        try:
            return self._ids.execute("INSERT OR IGNORE INTO ids VALUES (?)", (well_formed(name),)).rowcount == 1
        except sqlite3.Error as error:  # the disk of temporary files is full
            raise OSError(str(error)) from error


def write_data(folder: Path, **files: Iterable[Mapping[str, Any]]) -> None:
    """Write `corpus` and `queries` of a data folder, or one of them, each in one step; see `corag.text.data`."""
    for name, rows in files.items():
        write_atomically(folder / f"{name}.jsonl", "".join(map(_line, rows)))


def line_of(query: Query) -> dict[str, Any]:
    """Return the fields of a question's line, without those that it does not have."""
    row = asdict(query)
    extra, optional = row.pop("extra"), ("candidates", "grades", "history")
    return {**extra, **{name: value for name, value in row.items() if value or name not in optional}}


def share_corpus(folder: Path, other: Path) -> None:
    """Give a folder the corpus of another one: a link if the disk allows it, else a copy."""
    (folder / CORPUS_FILE).unlink(missing_ok=True)
    corpus = find_file(other, "corpus")
    try:
        os.link(corpus, folder / corpus.name)
    except OSError:
        shutil.copyfile(corpus, folder / corpus.name)


def write_source(folder: Path, record: Mapping[str, Any]) -> None:
    """Write where the data come from."""
    write_atomically(folder / SOURCE_FILE, to_json(record, indent=2) + "\n")


def read_source(folder: Path) -> Mapping[str, Any]:
    """Return what `write_source` wrote; empty if there is nothing of the kind."""
    try:
        record = json.loads((folder / SOURCE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def is_written(out: Path, entries: Mapping[str, Any], *, overwrite: bool) -> bool:
    """Return whether a folder was written with these entries in its record.

    Raises:
        DataError: It holds other files, or other data and `overwrite` is false.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    record = read_source(out)
    if not record:
        raise DataError(f"{out} holds something else; choose another folder with --out")
    if all(record.get(name) == value for name, value in entries.items()):
        return True
    if not overwrite:
        raise DataError(
            f"{out} holds {record.get('name')} with {record.get('references') or record.get('settings')}; choose "
            "another folder with --out, or replace it with --overwrite"
        )
    return False


def is_at_hand(name: str) -> bool:
    """Return whether a data folder can be found by its name."""
    try:
        find_data(name)
    except DataError:
        return False
    return True


@contextmanager
def _zipped(path: Path) -> Iterator[IO[bytes]]:
    # Neither time nor name: the same content gives the same bytes.
    with path.open("wb") as file, gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as zipped:
        yield cast(IO[bytes], zipped)


def _line(row: Mapping[str, Any]) -> str:
    # Some sources hold halves of characters.
    return well_formed(json.dumps(row, ensure_ascii=False)) + "\n"
