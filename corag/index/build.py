"""From a data folder's corpus, or from a folder of documents, to an index."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corag.errors import DataError, IndexMismatchError
from corag.files.chunks import chunk_file
from corag.files.read import TYPES, UnreadableFileError, find_files, read_bytes, read_file, reading_key
from corag.index.search import ChunkIndex
from corag.index.write import ChunkSource, Written, write_index
from corag.registry import tokens as make_tokens
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.data import find_data, find_file, read_corpus
from corag.types import Chunk, Embedder, TokenCounter

Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What became of the files of a folder.

    Attributes:
        unchanged: Files that are in the index as before.
        changed: Files that were read again.
        added: Files that are new.
        deleted: Files that are gone, or can no longer be read.
        unreadable: Path -> why it is left out.
        guessed: Path -> encoding that a file was taken to have, among those that were read now.
        others: Ending -> number of files of types that are not read.
    """

    unchanged: int = 0
    changed: int = 0
    added: int = 0
    deleted: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
    guessed: dict[str, str] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexUpdate:
    """An index that holds what a folder holds now, and what that took.

    Attributes:
        index: The index.
        written: Chunks embedded and copied; none if nothing had changed.
        changes: What became of the files; None for a corpus.
    """

    index: ChunkIndex
    written: Written
    changes: FileChanges | None


def update_index(
    folder: str | Path,
    uri: str | Path,
    embedder: Embedder,
    chunking: ChunkConfig,
    *,
    tokens: TokenCounter | None = None,
    states: bool | None = None,
    overwrite: bool = False,
    batch_size: int = 256,
    report: Report | None = None,
) -> IndexUpdate:
    """Index a folder, bring its index up to date, or go on where an earlier call stopped.

    A folder with `corpus.jsonl[.gz]` is a data folder; any other is a folder of documents (see `corag.files`).
    An index of the same folder, made with the same settings, is brought up to date: files that have not changed are
    not read again, and no text that it holds is embedded again. It stays readable until the new one is whole.

    Args:
        folder: The folder, or one document.
        uri: Where to put the index; see `ChunkIndex.build`, as for the settings below.
        embedder: Embeds the chunks.
        chunking: Sizes.
        tokens: Counts tokens as the answering model does.
        states: Store token states, too, for the shipped rerankers; None as the index that is there does.
        overwrite: Replace an index of something else that is there; the same index is kept and completed.
        batch_size: Chunks embedded and stored at a time.
        report: Called with (documents read, documents in all).

    Raises:
        DataError: There is nothing to index.
        IndexMismatchError: An index of another folder, or with other settings, is there and `overwrite` is False.
    """
    path = find_data(folder)
    is_corpus = any((path / name).is_file() for name in ("corpus.jsonl", "corpus.jsonl.gz"))
    make = CorpusSource if is_corpus else FolderSource
    source: CorpusSource | FolderSource = make(
        path, tokens or make_tokens(), chunking, report or (lambda done, total: None)
    )
    try:
        written = write_index(uri, source, embedder, states=states, batch_size=batch_size)
    except IndexMismatchError:
        if not overwrite:
            raise
        written = write_index(uri, source, embedder, states=states, batch_size=batch_size, overwrite=True)
    index = ChunkIndex.open(uri, embedder)
    return IndexUpdate(index, written, source.changes(written, index.manifest.settings))


class _Source(ChunkSource, ABC):
    """What both kinds of folders have in common; see `corag.index.write.ChunkSource`."""

    def __init__(self, path: Path, tokens: TokenCounter, chunking: ChunkConfig, report: Report) -> None:
        self._path, self._tokens, self._chunking, self._report = path, tokens, chunking, report
        self._made_with = {
            "max_tokens": chunking.max_tokens,
            "overlap_tokens": chunking.overlap_tokens,
            "tokenizer": tokens.name,
        }
        self.parts, *content = self._list()
        named = json.dumps([self._made_with, self.parts, *content], sort_keys=True)
        # Without the path: an index stays valid if its folder is moved.
        self.fingerprint = hashlib.sha256(named.encode()).hexdigest()
        self._made_with["source"] = str(path.resolve())
        self.settings: dict[str, Any] = dict(self._made_with)

    def is_update_of(self, settings: Mapping[str, Any]) -> bool:
        """Return whether an index was made of the same folder, and in the same way."""
        return all(settings.get(name) == value for name, value in self._made_with.items())

    @abstractmethod
    def _list(self) -> list[Any]:
        """Return the parts with their keys, and whatever else names the content."""


class CorpusSource(_Source):
    """The corpus of a data folder, as one part."""

    def _list(self) -> list[Any]:
        self._documents = read_corpus(self._path)
        return [{"corpus": _file_digest(find_file(self._path, "corpus"))}]

    def read(self, name: str) -> tuple[str, Iterator[Chunk]]:
        """Return the key of the corpus and its chunks."""
        return self.parts[name], self._chunks()

    def _chunks(self) -> Iterator[Chunk]:
        total = len(self._documents)
        for number, document in enumerate(self._documents.values()):
            self._report(number, total)
            yield from chunk_document(document, self._tokens, self._chunking)
        self._report(total, total)

    def finish(self, parts: Mapping[str, str]) -> None:
        """Note the number of documents."""
        self.settings["documents"] = len(self._documents)

    def changes(self, written: Written, settings: Mapping[str, Any]) -> None:
        """Return None: a corpus has no files of its own."""


class FolderSource(_Source):
    """A folder of documents, or one document; each file is a part.

    Raises:
        DataError: There is no document.
    """

    def _list(self) -> list[Any]:
        self._found = find_files(self._path)
        self._unreadable = dict(self._found.unreadable)
        self._guessed: dict[str, str] = {}
        self._num_read = 0
        keys: dict[str, str] = {}
        for name in self._found.paths:
            try:
                keys[name] = reading_key(_file_digest(self._found.root / name), name)
            except OSError as error:
                self._unreadable[name] = f"cannot be opened: {error.strerror or error}"
        self._require(keys)
        return [keys, dict(self._unreadable)]

    def read(self, name: str) -> tuple[str, list[Chunk]] | None:
        """Return what the text of a file depends on, and its chunks; None, and a note, if it cannot be read."""
        self._report(self._num_read, len(self.parts))
        self._num_read += 1
        try:
            data = read_bytes(self._found.root / name)
            # The file may have changed since it was hashed: what counts is what was read.
            key = reading_key(hashlib.sha256(data).hexdigest(), name)
            file = read_file(data, name)
            chunks = chunk_file(name, file, self._tokens, self._chunking)
            if not chunks:
                raise UnreadableFileError("it holds no text")
        except UnreadableFileError as error:
            self._unreadable[name] = str(error)
            return None
        if file.guessed_encoding:
            self._guessed[name] = file.guessed_encoding
        return key, chunks

    def finish(self, parts: Mapping[str, str]) -> None:
        """Note the number of files and those that cannot be read."""
        self._report(len(self.parts), len(self.parts))
        self._require(parts)
        self.settings |= {"documents": len(parts), "unreadable": dict(sorted(self._unreadable.items()))}

    def changes(self, written: Written, settings: Mapping[str, Any]) -> FileChanges:
        """Return what became of the files."""
        self._report(len(self.parts), len(self.parts))
        before, after = written.before, written.after
        unreadable = settings["unreadable"]
        return FileChanges(
            unchanged=sum(before.get(name) == key for name, key in after.items()),
            changed=sum(name in before and before[name] != key for name, key in after.items()),
            added=len(after.keys() - before.keys()),
            deleted=len(before.keys() - after.keys() - unreadable.keys()),
            unreadable=unreadable,
            guessed=self._guessed,
            others=self._found.others,
        )

    def _require(self, parts: Mapping[str, str]) -> None:
        """Raise `DataError` unless there is a document."""
        if parts:
            return
        reason = f"{self._path} has neither corpus.jsonl[.gz] nor documents ({', '.join(TYPES)})"
        if self._unreadable:
            name, why = next(iter(self._unreadable.items()))
            number = len(self._unreadable)
            reason = f"{self._path}: {name}: {why}"
            if number > 1:
                reason = f"none of the {number} documents in {self._path} can be read ({name}: {why})"
        raise DataError(f"{reason}; an index needs at least one document with text")


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
