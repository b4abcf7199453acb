"""From a data folder's corpus, or from a folder of documents, to an index."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from corag.ambient import Report
from corag.errors import DataError, InputError
from corag.files.chunks import chunk_file
from corag.files.markdown import FileText
from corag.files.process import read_file
from corag.files.read import FoundFiles, UnreadableFileError, find_files, missing_needs, read_bytes, reading_key
from corag.files.repeated import compared_files, repeated_paragraphs, without_repeated
from corag.index.search import ChunkIndex
from corag.index.store import MANIFEST, local_folder
from corag.index.write import ChunkSource, write_index
from corag.memory import LRU
from corag.registry import tokens as make_tokens
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.data import find_data, find_file, read_corpus
from corag.types import Chunk, Embedder, TokenCounter

_TIMED = 8
"""Chunks by which the time of a first index is estimated."""
_FEW_CHUNKS = 300
_OWN = 32
"""Characters of a part's hash that are of the file itself; others are of what it is compared with."""
_KEPT_BYTES = 2**25
"""Texts that have been read to be compared with others of their folder, and are kept until it is their turn."""
_BYTES_PER_TOKEN = 4
# Bytes of text by bytes of a file, where they differ much.
_TEXT_SHARES = {".gz": 3.0, ".pdf": 0.1, ".docx": 0.1, ".pptx": 0.02, ".epub": 0.5, ".html": 0.4, ".ipynb": 0.1}


@dataclass(frozen=True, slots=True)
class IndexUpdate:
    """An up-to-date index, and what the update did; `files` and `skipped` are empty for a corpus.

    Attributes:
        index: The index.
        num_embedded: Chunks that were embedded.
        num_copied: Chunks that were kept, or whose vector was; both are 0 if nothing had changed.
        files: Number of files that are `new`, `unchanged`, `changed`, `deleted` and `skipped`.
        skipped: Path -> why it is left out.
    """

    index: ChunkIndex
    num_embedded: int
    num_copied: int
    files: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)


def update_index(
    folder: str | Path,
    uri: str | Path,
    embedder: Embedder,
    chunking: ChunkConfig,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    tokens: TokenCounter | None = None,
    overwrite: bool = False,
    reread: bool = False,
    batch_size: int = 256,
    report: Report = lambda done, total: None,
    announce: Callable[[float], None] | None = None,
) -> IndexUpdate:
    """Index a data folder or a folder of documents, update its index, or resume an interrupted call.

    In an index of the same folder, made with the same settings, files that have not changed are not read again, and no
    text that it holds is embedded again. What was skipped for lack of a package or a program is tried again where that
    is there. The index stays readable until the new one is complete.

    Args:
        folder: The folder, or one document.
        uri: Where to put the index; see `ChunkIndex.build`.
        embedder: Embeds the chunks.
        chunking: Sizes.
        include: Globs of the documents to index; see `corag.files.read.find_files`.
        exclude: Globs of documents to leave out.
        tokens: Counts tokens as the answering model does.
        overwrite: Replace an index of something else.
        reread: Read files again that have not changed.
        batch_size: Chunks embedded and stored at a time.
        report: Called with (documents read, documents in all).
        announce: Called with about how many seconds a first index takes, before it is made.

    Raises:
        DataError: There is nothing to index.
        InputError: The index would be among the data, or documents are to be chosen from what is no folder of them.
        IndexMismatchError: An index of another folder, or with other settings, exists and `overwrite` is False.
    """
    if "://" in str(folder):
        raise InputError(f"documents are read from a local folder, not from {folder}; copy them into one")
    path = find_data(folder)
    is_data = any((path / name).is_file() for name in ("corpus.jsonl", "corpus.jsonl.gz"))
    if (is_data or path.is_file()) and (include or exclude):
        raise InputError(f"include and exclude are for folders of documents, not {path}; leave them out")
    out, data = (local_folder(uri) or Path(uri)).resolve(), path.resolve()  # that of a URI is nowhere
    if out == data or (is_data and data in out.parents):
        raise InputError(f"the index {uri} would be among the data in {path}; put it elsewhere, such as runs/index")
    tokens = tokens or make_tokens()
    settings = {**asdict(chunking), "tokenizer": tokens.name, "source": str(path.resolve())}
    if is_data:
        files, paths = None, [find_file(path, "corpus")]
        source = _corpus_source(path, tokens, chunking, settings, report)
    else:
        files = find_files(path, include=include, exclude=exclude)
        paths = [files.root / name for name in files.kinds]
        advice = ", and check include and exclude" if include or exclude else ""
        source = _folder_source(path, files, tokens, chunking, settings, report, advice)
    if announce is not None and not (out / f"{MANIFEST}.lance").exists():
        announce(_estimated_seconds(paths, embedder, chunking))
    written = write_index(uri, source, embedder, batch_size=batch_size, overwrite=overwrite, reread=reread)
    index = ChunkIndex.open(uri, embedder)
    if files is None:
        return IndexUpdate(index, written.num_embedded, written.num_copied)
    report(len(source.parts), len(source.parts))
    before, after = written.before, written.after
    skipped = index.manifest.settings["skipped"]
    counts = {
        "new": len(after.keys() - before.keys()),
        "unchanged": sum(before.get(name, "")[:_OWN] == key[:_OWN] for name, key in after.items()),
        "changed": sum(name in before and before[name][:_OWN] != key[:_OWN] for name, key in after.items()),
        "deleted": len(before.keys() - after.keys() - skipped.keys()),
        "skipped": len(skipped),
    }
    return IndexUpdate(index, written.num_embedded, written.num_copied, counts, skipped)


def _estimated_seconds(files: Sequence[Path], embedder: Embedder, chunking: ChunkConfig) -> float:
    """Return about how long a first index takes, by the sizes of the files and the time for a few full chunks.

    It is 0 for files so small that measuring would take longer than it says.
    """
    num_bytes = sum(file.stat().st_size * _TEXT_SHARES.get(file.suffix.lower(), 1) for file in files)
    num_chunks = num_bytes / (_BYTES_PER_TOKEN * chunking.max_tokens)
    if num_chunks < _FEW_CHUNKS:
        return 0.0
    chunks = ["word " * (chunking.max_tokens - 2)] * _TIMED
    embedder.embed(chunks)  # the first time is longer
    begun_s = time.perf_counter()
    embedder.embed(chunks)
    return num_chunks * (time.perf_counter() - begun_s) / _TIMED


def _corpus_source(
    path: Path, tokens: TokenCounter, chunking: ChunkConfig, settings: dict[str, Any], report: Report
) -> ChunkSource:
    """Return the corpus of a data folder as a source of one part."""
    documents = read_corpus(path)
    digest = reading_key(_file_digest(find_file(path, "corpus")), "corpus", "corpus")

    def chunks() -> Iterator[Chunk]:
        for number, document in enumerate(documents.values()):
            report(number, len(documents))
            yield from chunk_document(document, tokens, chunking)
        report(len(documents), len(documents))

    parts = {"corpus": digest}
    return ChunkSource(parts, lambda _: chunks(), _fingerprint(settings, parts), settings)


def _folder_source(
    path: Path,
    files: FoundFiles,
    tokens: TokenCounter,
    chunking: ChunkConfig,
    settings: dict[str, Any],
    report: Report,
    advice: str,
) -> ChunkSource:
    """Return the documents of a folder as a source; reading them adds to `settings["skipped"]`.

    If there is no document, or all are unreadable, it or its reading raises `DataError`.
    """
    skipped = dict(files.skipped)
    digests = {name: _file_digest(files.root / name) for name in files.kinds}
    compared = compared_files(files.kinds)
    keys = {name: reading_key(digests[name], name, kind) for name, kind in files.kinds.items()}
    for name, others in compared.items():
        keys[name] += hashlib.sha256(json.dumps([(one, digests[one]) for one in others]).encode()).hexdigest()[:_OWN]
    fingerprint = _fingerprint(settings, keys, dict(skipped), missing_needs(set(files.kinds.values())))
    settings["skipped"] = skipped
    numbers = count()
    texts: LRU[str, FileText] = LRU(_KEPT_BYTES)
    repeated: dict[tuple[str, ...], dict[str, str]] = {}

    def text_of(name: str) -> FileText:
        def read_now(names: list[str]) -> list[FileText]:
            return [read_file(read_bytes(files.root / one), one) for one in names]

        others = compared.get(name, ())
        if others and others not in repeated:
            readable = {}
            for other in others:
                with suppress(UnreadableFileError):
                    [readable[other]] = texts.get_many([other], read_now)
            repeated[others] = repeated_paragraphs(readable)
        [text] = texts.get_many([name], read_now)
        return without_repeated(name, text, repeated[others]) if others else text

    def require_documents() -> None:
        if skipped.keys() >= keys.keys():
            listed = "".join(f"; {name}: {reason}" for name, reason in list(skipped.items())[:3])
            raise DataError(
                f"there is no document with text in {path}{listed}; give a folder of documents or a data folder{advice}"
            )

    def read(name: str) -> list[Chunk] | None:
        report(next(numbers), len(keys))
        try:
            chunks = chunk_file(name, text_of(name), tokens, chunking)
            if not chunks:
                raise UnreadableFileError("it holds no text")
        except UnreadableFileError as error:
            skipped[name] = str(error)
            require_documents()
            return None
        return chunks

    require_documents()
    return ChunkSource(keys, read, fingerprint, settings)


def _fingerprint(settings: Mapping[str, Any], *content: Any) -> str:
    # Without the path: an index stays valid if its folder is moved.
    named = {name: value for name, value in settings.items() if name != "source"}
    return hashlib.sha256(json.dumps([named, *content], sort_keys=True).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return ""  # reading it says why
