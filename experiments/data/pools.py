"""Where a question's candidates come from: its own list, the document of its evidence, a corpus, or a TREC run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from common.storage import folder_lock
from corag.ambient import Report
from corag.cli.console import progress
from corag.errors import DataError, InputError
from corag.index import ChunkIndex, update_index
from corag.memory import cache_folder
from corag.models.embedders import vectors_by
from corag.models.encoders import MAX_TOKENS, CachedEncoder, minilm_encoder
from corag.models.runtime import resolve_device, runtime
from corag.optional import warn_once
from corag.selectors.raptor.tree import tree_file
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.data import DataFolder, Query, passage_at, passage_of
from corag.text.documents import passage
from corag.text.tokens import minilm
from corag.types import Candidate, Chunk, Embedder
from experiments.data.config import CandidateSettings
from experiments.data.trec import escaped, read_run
from experiments.run.journal import digest, fingerprint

EMBEDDED_TOGETHER = 512

Pool = Mapping[str, list[Candidate]]
"""The candidates of each question by its id, best first; those of a run with its score, others with their cosine."""


def pool_name(settings: CandidateSettings, queries: Sequence[Query], index: str | Path | None) -> str:
    """Return where candidates come from, as results record it: `run`, `candidates`, `document` or `corpus`.

    `auto` stands for the questions' own candidates if all have some and there is no index.
    """
    if settings.run is not None:
        return "run"
    if settings.pool != "auto":
        return settings.pool
    return "candidates" if index is None and all(query.candidates is not None for query in queries) else "corpus"


def open_pool(
    folder: DataFolder,
    queries: Sequence[Query],
    embedder: Embedder,
    settings: CandidateSettings,
    *,
    index: str | Path | None = None,
    documents_limit: int | None = None,
    chunking: ChunkConfig | None = None,
    quiet: bool = False,
) -> Pool:
    """Return the pool that the settings ask for; see `pool_name` and `ChunkIndex.retrieve`.

    Without an `index` of the corpus, one is built in the cache folder, cut as `chunking` says. `num_candidates` of the
    settings counts for a corpus and a run, `documents_limit` for documents.
    """
    if settings.run is not None:
        return _of_run(settings.run, folder, queries, settings.num_candidates)
    pool = pool_name(settings, queries, index)
    if pool != "corpus":
        if settings.retrieval not in (None, "vector"):
            raise InputError(f"retrieval {settings.retrieval!r} is of a corpus; with pool {pool!r} leave it out")
        queries, limit = (with_documents(folder, queries), documents_limit) if pool == "document" else (queries, None)
        with progress(f"embed {pool.removesuffix('s')}s", quiet=quiet) as report:
            return _of_lists(folder, queries, embedder, limit, report)
    if index is not None:
        opened = ChunkIndex.open(index, embedder)
    else:
        chunking = chunking or ChunkConfig()
        name = fingerprint([str(folder.path.resolve()), embedder.name, *astuple(chunking)])
        indexes = cache_folder() / "indexes"
        # Of two processes, one builds it.
        with folder_lock(indexes, f"{name}.lock"), progress("index corpus", quiet=quiet) as report:
            opened = update_index(folder.path, indexes / name, embedder, chunking, report=report, overwrite=True).index
    texts = [query.question for query in queries]
    vectors = vectors_by(embedder, texts, query=True)
    pools = opened.retrieve_many(texts, vectors, settings.num_candidates, settings.retrieval or "hybrid")
    return {query.id: pool for query, pool in zip(queries, pools, strict=True)}


def _of_lists(
    folder: DataFolder, queries: Sequence[Query], embedder: Embedder, limit: int | None, report: Report
) -> Pool:
    """Return the questions' own passages, each embedded once, ranked by cosine.

    A passage is one chunk, unless it has more than MiniLM's `MAX_TOKENS`: it is cut as an index cuts it, as a contract
    would be seen and chosen as a whole. A question without a list of candidates is a `DataError`.
    """
    tokens = minilm()
    pieces: dict[str, list[Chunk]] = {}
    for query in queries:
        if query.candidates is None:
            raise DataError(f"question {query.id!r} of {folder.path} has no candidates; use --pool corpus")
        for name in query.candidates:
            if name not in pieces:
                document = folder.documents[name]
                is_long = int(tokens.count([document.text])[0]) > MAX_TOKENS
                pieces[name] = chunk_document(document, tokens) if is_long else [passage(document)]
    chunks = {chunk.id: chunk for of_document in pieces.values() for chunk in of_document}
    texts, embedded = [chunk.text for chunk in chunks.values()], list[NDArray[np.float32]]()
    for start in range(0, len(texts), EMBEDDED_TOGETHER):
        report(start, len(texts))
        embedded += list(vectors_by(embedder, texts[start : start + EMBEDDED_TOGETHER]))
    vectors = dict(zip(chunks, embedded, strict=True))
    pool, questions = {}, vectors_by(embedder, [query.question for query in queries], query=True)
    for query, question in zip(queries, questions, strict=True):
        names = [chunk.id for name in query.candidates or () for chunk in pieces[name]]
        cosines = [float(vectors[name] @ question) for name in names]
        ranking = sorted(range(len(names)), key=lambda i: (-cosines[i], i))[:limit]
        pool[query.id] = [Candidate(chunks[names[i]], cosines[i], embedder=embedder.name) for i in ranking]
    return pool


def _of_run(run: str, folder: DataFolder, queries: Sequence[Query], num_candidates: int) -> Pool:
    """Return the passages, or spans `passage#start-end`, that a TREC run ranks first.

    Raises:
        DataError: The run is broken, names a passage that the corpus lacks, or ranks nothing for all questions.
    """
    found = read_run(run, {escaped(query.id) for query in queries}, limit=num_candidates)
    lacking = [query.id for query in queries if escaped(query.id) not in found]
    if len(lacking) == len(queries):
        raise DataError(
            f"{run} ranks nothing for any of the {len(queries)} questions (the first is {lacking[0]!r}); its first "
            f"column must hold ids of questions of {folder.path}"
        )
    if lacking:
        warn_once(f"{run} ranks nothing for {len(lacking)} questions (first: {lacking[0]})")

    def candidate(rank: int, name: str, score: float) -> Candidate:
        chunk = passage_at(name, folder.documents) or passage_at(unquote(name), folder.documents)
        if chunk is None:
            raise DataError(
                f"{run}: passage {name!r} is not in the corpus of {folder.path}; give a run over this corpus"
            )
        return Candidate(chunk, score, "score", rank=rank)

    ranked = {query.id: found.get(escaped(query.id), {}).items() for query in queries}
    return {query: [candidate(rank, *one) for rank, one in enumerate(of)] for query, of in ranked.items()}


def with_documents(folder: DataFolder, queries: Sequence[Query]) -> list[Query]:
    """Return questions with the passages of their documents as candidates.

    A question's document is what its field `document` names, else that of its gold; the passages of a document are
    those with the same title, as the paragraphs of an article in SQuAD. If neither is in the corpus, that is a
    `DataError`.
    """
    by_title: dict[str, list[str]] = {}
    for document in folder.documents.values():
        by_title.setdefault(document.title or document.id, []).append(document.id)
    found = []
    for query in queries:
        named = str(query.extra.get("document"))
        gold = [name for entry in query.gold if (name := passage_of(entry, folder.documents)) is not None]
        names = [named] if named in folder.documents else gold
        titles = list(dict.fromkeys(folder.documents[name].title or name for name in names))
        if not titles:
            raise DataError(
                f"question {query.id!r} of {folder.path} has no evidence in the corpus and no field document, so its "
                "document is not known; use --pool corpus"
            )
        found.append(replace(query, candidates=tuple(name for title in titles for name in by_title[title])))
    return found


def content_hash(folder: DataFolder, index: str | Path | None, run: str | Path | None = None) -> str:
    """Return a hash of what candidates come from: questions and corpus, and the index and the run that are given."""
    corpus = hashlib.sha256()
    for document in folder.documents.values():
        corpus.update(fingerprint(asdict(document)).encode())
    content: object = None if index is None else ChunkIndex.open(index).manifest.fingerprint
    if index is not None and (tree := tree_file(index)) is not None:
        content = [content, _file_hash(tree)]
    asked = [fingerprint(asdict(query)) for query in folder.queries]
    return fingerprint([asked, corpus.hexdigest(), content, None if run is None else _file_hash(Path(run))])


def _file_hash(path: Path) -> str:
    try:
        return digest(path)
    except OSError as error:
        raise DataError(f"the run {path} cannot be read: {error}; check the path") from error


def sample_questions(queries: Sequence[Query], number: int | None, seed: int) -> list[Query]:
    """Return this many questions drawn at random, in their own order; all if no number is given or there are fewer."""
    if number is None or number >= len(queries):
        return list(queries)
    rows = np.random.default_rng(seed).choice(len(queries), number, replace=False)
    return [queries[row] for row in np.sort(rows)]


@contextmanager
def reproducible() -> Iterator[None]:
    """Let models that are built inside read one text at a time on a CPU: a resumed run ends with the same bits."""
    placement = resolve_device("embedder")
    alone: dict[str, Any] = {"batch_tokens": 1, "precision": placement.precision} if placement.kind == "cpu" else {}
    with runtime(**alone):
        yield


def shared_encoder() -> CachedEncoder:
    """Return MiniLM's encoder, which runs every text once for all parts that are given it."""
    with reproducible():
        return CachedEncoder(minilm_encoder())
