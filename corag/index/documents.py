"""A folder of documents as the chunks of an index: only files that have changed are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corag.errors import DataError
from corag.files.chunks import chunk_file
from corag.files.find import TYPES, find_files
from corag.files.read import UnreadableFileError, read_bytes, read_file, reading_key
from corag.index.reuse import Previous
from corag.index.work import IndexWork
from corag.text.chunking import ChunkConfig
from corag.types import Chunk, TokenCounter


@dataclass(slots=True)
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


class FolderSource:
    """The documents of a folder, or one document.

    Args:
        path: The folder or file.
        tokens: Counts tokens.
        chunking: Sizes.
        report: Called with (files done, files in all).

    Attributes:
        changes: What became of the files; whole after the chunks were taken.

    Raises:
        DataError: There is no document.
    """

    def __init__(
        self, path: Path, tokens: TokenCounter, chunking: ChunkConfig, report: Callable[[int, int], None] | None
    ) -> None:
        self._found = find_files(path)
        self._tokens = tokens
        self._chunking = chunking
        self._report = report or (lambda done, total: None)
        self.changes = FileChanges(unreadable=dict(self._found.unreadable), others=self._found.others)
        self._keys: dict[str, str] = {}
        for name in self._found.paths:
            try:
                self._keys[name] = reading_key(_file_digest(self._found.root / name), name)
            except OSError as error:
                self.changes.unreadable[name] = f"cannot be opened: {error.strerror or error}"
        if not self._keys:
            raise DataError(_nothing(path, self.changes))

    def work(self, settings: Mapping[str, Any]) -> IndexWork:
        """Return the work of indexing the folder; `settings` say how it is cut."""
        content = [dict(settings), self._keys, self.changes.unreadable]
        fingerprint = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        files: dict[str, Any] = {}
        work = IndexWork(lambda previous: self._chunks(previous, work), fingerprint, dict(settings), files)
        return work

    def _chunks(self, previous: Previous | None, work: IndexWork) -> Iterator[Chunk | range]:
        """Yield the chunks of each file; note in `work` what is known of the files."""
        known = previous.files if previous is not None else {}
        num_chunks = self.changes.unchanged = self.changes.changed = self.changes.added = 0
        work.files.clear()
        self._report(0, len(self._keys))
        for place, (name, key) in enumerate(self._keys.items(), start=1):
            before = known.get(name)
            if previous is not None and before is not None and before[0] == key:
                chunks: Sequence[Chunk | range] = previous.unchanged(before[1:])
                self.changes.unchanged += 1
            else:
                try:
                    key, chunks = self._read(name)
                except UnreadableFileError as error:
                    self.changes.unreadable[name] = str(error)
                    continue
                self.changes.changed += before is not None
                self.changes.added += before is None
            number = sum(len(one) if isinstance(one, range) else 1 for one in chunks)
            work.files[name] = [key, num_chunks, number]
            num_chunks += number
            yield from chunks
            self._report(place, len(self._keys))
        self._report(len(self._keys), len(self._keys))
        self.changes.deleted = len(known.keys() - work.files.keys() - self.changes.unreadable.keys())
        self._note(work.settings, len(work.files))
        if not work.files:
            raise DataError(_nothing(self._found.root, self.changes))

    def _read(self, name: str) -> tuple[str, list[Chunk]]:
        """Return what a file's text depends on, and its chunks."""
        data = read_bytes(self._found.root / name)
        # The file may have changed since it was hashed: what counts is what was read.
        key = reading_key(hashlib.sha256(data).hexdigest(), name)
        file = read_file(data, name)
        if file.guessed_encoding:
            self.changes.guessed[name] = file.guessed_encoding
        if not (chunks := chunk_file(name, file, self._tokens, self._chunking)):
            raise UnreadableFileError("it holds no text")
        return key, chunks

    def _note(self, settings: dict[str, Any], num_files: int) -> None:
        self.changes.unreadable = dict(sorted(self.changes.unreadable.items()))
        settings["documents"] = num_files
        settings["unreadable"] = self.changes.unreadable

    def settle(self, settings: Mapping[str, Any]) -> None:
        """Complete `changes` from the settings of an index that needed no work."""
        if not (self.changes.unchanged or self.changes.changed or self.changes.added):
            self.changes.unchanged = settings["documents"]
            self.changes.unreadable = dict(settings["unreadable"])
            self._report(len(self._keys), len(self._keys))


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _nothing(path: Path, changes: FileChanges) -> str:
    """Say why there is nothing to index."""
    reason = f"{path} has neither corpus.jsonl[.gz] nor documents ({', '.join(TYPES)})"
    if changes.unreadable:
        name, why = next(iter(changes.unreadable.items()))
        number = len(changes.unreadable)
        reason = f"none of the {number} documents in {path} can be read" if number > 1 else f"{path}: {name}"
        reason += f" ({name}: {why})" if number > 1 else f": {why}"
    return f"{reason}; an index needs at least one document with text"
