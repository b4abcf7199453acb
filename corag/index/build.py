"""From a data folder's corpus, or from a folder of documents, to an index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag.errors import IndexMismatchError
from corag.index.documents import FileChanges, FolderSource
from corag.index.search import ChunkIndex
from corag.index.stored import StoredChunks
from corag.index.work import Written
from corag.index.write import work_of, write_index
from corag.registry import tokens as make_tokens
from corag.text.chunking import ChunkConfig, chunk_documents
from corag.text.data import read_corpus
from corag.text.find import find_data
from corag.types import Embedder, TokenCounter

_MADE_WITH = ("source", "max_tokens", "overlap_tokens", "tokenizer")
"""Settings that two indexes must share for one to be the other's update."""


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
    overwrite: bool = False,
    batch_size: int = 256,
    report: Callable[[int, int], None] | None = None,
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
        overwrite: Replace an index of something else that is there; the same index is kept and completed.
        batch_size: Chunks embedded and stored at a time.
        report: Called with (chunks stored, chunks in all); for documents with (files done, files in all).

    Raises:
        DataError: There is nothing to index.
        IndexMismatchError: An index of another folder, or with other settings, is there and `overwrite` is False.
    """
    path = find_data(folder)
    counter = tokens or make_tokens()
    settings: dict[str, Any] = {
        "max_tokens": chunking.max_tokens,
        "overlap_tokens": chunking.overlap_tokens,
        "tokenizer": counter.name,
    }
    source: FolderSource | None = None
    if any((path / name).is_file() for name in ("corpus.jsonl", "corpus.jsonl.gz")):
        documents = read_corpus(path)
        chunks = StoredChunks(chunk_documents(documents.values(), counter, chunking))
        settings["documents"] = len(documents)
        # An index stays valid where its folder is moved.
        work = work_of(chunks, settings)
    else:
        source = FolderSource(path, counter, chunking, report)
        work = source.work(settings)
    work.settings["source"] = str(path.resolve())
    work.updates = lambda found: all(found.get(name) == work.settings[name] for name in _MADE_WITH)
    progress = report if source is None else None
    try:
        written = write_index(uri, work, embedder, batch_size=batch_size, progress=progress)
    except IndexMismatchError:
        if not overwrite:
            raise
        written = write_index(uri, work, embedder, batch_size=batch_size, progress=progress, overwrite=True)
    index = ChunkIndex.open(uri, embedder)
    if source is None:
        return IndexUpdate(index, written, None)
    source.settle(index.manifest.settings)
    return IndexUpdate(index, written, source.changes)
