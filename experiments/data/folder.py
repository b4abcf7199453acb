"""Writing a data folder as a stream: no corpus is held in memory, and a folder appears when it is whole."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from agent.files import replace_file
from corag.errors import DataError
from corag.text.data import find_data
from corag.text.documents import Document

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
        id: Unique name within the set.
        question: The question.
        answers: Reference answers.
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


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a folder to write into, which takes the place of `out` when the block ends without an error.

    A kill leaves it as `.<name>.part`, which the next run deletes, and an existing folder as it was: while the two are
    exchanged it is `.<name>.old`, and the next call moves it back.

    Raises:
        DataError: It cannot be written, as on a full disk; nothing is left behind.
    """
    draft = _beside(out, "part")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        yield draft
        old = _restored(out)
        if out.exists():
            out.rename(old)
        draft.rename(out)
    except (OSError, sqlite3.Error) as error:
        raise DataError(
            f"{out} cannot be written: {error}; free some space, or choose another folder with --out, and run the same "
            "command again"
        ) from error
    finally:
        _restored(out)
        shutil.rmtree(draft, ignore_errors=True)


def _beside(out: Path, ending: str) -> Path:
    return out.absolute().with_name(f".{out.absolute().name}.{ending}")


def _restored(out: Path) -> Path:
    """Return where an old folder goes while a new one replaces it; one that is left there is moved back, or deleted."""
    old = _beside(out, "old")
    if old.exists() and not out.exists():
        old.rename(out)
    shutil.rmtree(old, ignore_errors=True)
    return old


class FolderWriter(ExitStack):
    """Writes the corpus and the questions of a data folder, each passage and each question once.

    The same passages and questions in the same order give the same bytes.

    Attributes:
        num_passages: Passages written.
        num_questions: Questions written by split.
        num_repeated: Questions left out because their id had come before.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.num_passages = 0
        self.num_questions: dict[str, int] = {}
        self.num_repeated = 0
        # On disk: a corpus may have millions of ids.
        self._ids = sqlite3.connect("", isolation_level=None)
        self._ids.execute("PRAGMA journal_mode = OFF")
        self._ids.execute("CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID")
        self._ids.execute("BEGIN")
        self._corpus = self.enter_context(_zipped(folder / CORPUS_FILE))
        self._queries = self.enter_context(_zipped(folder / QUERIES_FILE))

    def passage(self, passage: Document) -> None:
        """Write a passage if it is new."""
        if self._is_new(f"passage {passage.id}"):
            _write(self._corpus, {"id": passage.id, "title": passage.title, "text": passage.text})
            self.num_passages += 1

    def question(self, question: Question, split: str) -> None:
        """Write a question and the passages that it brings."""
        if not self._is_new(f"question {question.id}"):
            self.num_repeated += 1
            return
        for passage in question.passages:
            self.passage(passage)
        row: dict[str, Any] = {
            "id": question.id,
            "question": question.question,
            "answers": list(question.answers),
            "gold": list(question.gold),
            "split": split,
        }
        if question.pool:
            row["candidates"] = [passage.id for passage in question.passages]
        _write(self._queries, {**question.extra, **row})
        self.num_questions[split] = self.num_questions.get(split, 0) + 1

    def _is_new(self, name: str) -> bool:
        return self._ids.execute("INSERT OR IGNORE INTO ids VALUES (?)", (_unicode(name),)).rowcount == 1


def write_queries(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the questions of a data folder."""
    with _zipped(folder / QUERIES_FILE) as file:
        for row in rows:
            _write(file, row)


def share_corpus(folder: Path, other: Path) -> None:
    """Give a folder the corpus of another one: a link if the disk allows it, else a copy."""
    for name in (CORPUS_FILE, CORPUS_FILE.removesuffix(".gz")):
        if (other / name).is_file():
            (folder / CORPUS_FILE).unlink(missing_ok=True)
            try:
                os.link(other / name, folder / name)
            except OSError:
                shutil.copyfile(other / name, folder / name)
            return
    raise DataError(f"{other} has no corpus; name a data folder with {CORPUS_FILE}")


def write_source(folder: Path, record: Mapping[str, Any]) -> None:
    """Write where the data come from."""
    replace_file(folder / SOURCE_FILE, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


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
    _restored(out)
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    record = read_source(out)
    if record and all(record.get(name) == value for name, value in entries.items()):
        return True
    if not record:
        raise DataError(f"{out} holds something else; choose another folder with --out")
    if not overwrite:
        raise DataError(
            f"{out} holds {record.get('name')} with {record.get('settings')}; choose another folder with --out, or "
            "replace it with --overwrite"
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
    """Yield a gzipped file to write into; it is on disk at the end."""
    with path.open("wb") as file:
        # Neither time nor name: the same content gives the same bytes.
        with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as zipped:
            yield cast(IO[bytes], zipped)
        file.flush()
        os.fsync(file.fileno())


def _write(file: IO[bytes], row: Mapping[str, Any]) -> None:
    file.write(_unicode(json.dumps(row, ensure_ascii=False)).encode() + b"\n")


def _unicode(text: str) -> str:
    """Return a text without the lone surrogates that some sources hold."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
