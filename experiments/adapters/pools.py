"""Questions with candidates: what values and the cross-encoder learn from.

Where candidates are sentences, the supporting sentences that the data names are the evidence. Where it names passages
alone, one sentence of each is, and nobody knows which: every such set that holds the answer may be true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from corag.errors import DataError
from corag.models.cached import CachedEmbedder, MiniLMEmbedder
from corag.models.encoders import TextEncoder
from corag.models.engine import Float32
from corag.registry import tokens as make_tokens
from corag.rerankers.bm25 import Bm25
from corag.selectors.problem import SelectionProblem, cut_problem
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.data import DataFolder, Query, passage_at
from corag.text.documents import Document, body, passage
from corag.text.support import supporting_spans
from corag.text.units import source_of, unit_size
from corag.types import Candidate, Chunk, Embedder
from experiments.adapters.config import EvidenceSource
from experiments.data.splits import hash_fraction, held_out
from experiments.protocol.held_out import not_to_learn

MAX_SETS = 300
"""Sets that may be the evidence of one question; of more, those of the most promising sentences."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """A question with its candidates, by cosine, best first.

    `golds` are the sets of indices, ascending, each of which may be the evidence: none unless all of it is among the
    candidates, several if the data tells which passages hold it and not which of their sentences. `ordered` are the
    indices of the evidence among the candidates, as the data orders it.
    """

    id: str
    question: str
    chunks: tuple[Chunk, ...]
    similarities: tuple[float, ...]
    ordered: tuple[int, ...]
    golds: tuple[tuple[int, ...], ...]


def open_folder(source: EvidenceSource, data: str) -> DataFolder:
    """Return the data folder of a source below `data`, its long documents cut into passages.

    A gold entry that is a span of a document becomes each passage that shares a quarter of the span, and what they
    share a supporting span. Other gold entries stay, so a question whose evidence is a whole long document is not
    learned from.
    """
    folder = DataFolder.open(Path(data) / source.data)
    if not source.passage_tokens:
        return folder
    config, counter = ChunkConfig(source.passage_tokens), make_tokens()
    pieces = {name: chunk_document(document, counter, config) for name, document in folder.documents.items()}
    documents = {
        chunk.id: Document(chunk.id, body(chunk), folder.documents[name].title)
        for name, chunks in pieces.items()
        for chunk in chunks
    }
    queries = []
    for query in folder.queries:
        gold, shared = list[str](), list[str]()
        for span in (passage_at(entry, folder.documents) for entry in query.gold):
            if span is None or "start" not in span.metadata:
                continue
            start, end = span.metadata["start"], span.metadata["end"]
            for chunk in pieces[span.metadata["document"]]:
                shift = chunk.metadata["start"]
                first, last = max(start, shift), min(end, chunk.metadata["end"])
                if 4 * (last - first) >= end - start:
                    gold.append(chunk.id)
                    shared.append(f"{chunk.id}#{first - shift}-{last - shift}")
        extra = {**query.extra, "supporting_spans": shared}
        queries.append(replace(query, gold=tuple(dict.fromkeys(gold)), extra=extra))
    return replace(folder, documents=documents, queries=tuple(queries))


def questions_of(folder: DataFolder, source: EvidenceSource) -> list[Query]:
    """Return the questions of a source, none of the held-out list; a source without any is a `DataError`."""
    queries = folder.split(source.split)
    sealed = not_to_learn(folder)
    held = held_out(folder, queries, source.held_out) if source.held_out else frozenset()
    queries = [
        query
        for query in queries
        if (query.id in held) == (source.part == "held-out")
        and query.id not in sealed
        and query.gold
        and all(name in folder.documents for name in query.gold)
    ]
    if source.limit and source.limit < len(queries):
        queries = sorted(queries, key=lambda query: hash_fraction(query.id, "limit"))[: source.limit]
    if not queries:
        raise DataError(f"{folder.path} has no question of split {source.split!r} with evidence to learn from")
    return queries


def pools(folder: DataFolder, embedder: Embedder, source: EvidenceSource, queries: Sequence[Query]) -> list[Pooled]:
    """Return the questions of a source with their candidates, the unanswerable ones after the others."""
    offers = _offers(folder, embedder, source)
    vectors = embedder.embed([query.question for query in queries])
    answerable, lacking = [], []
    for query, vector in zip(queries, vectors, strict=True):
        names = offers(query, vector)
        answerable.append(_pooled(folder, embedder, query, vector, names))
        others = [name for name in names if name not in query.gold]
        if others and hash_fraction(query.id, "unanswerable") < source.unanswerable:
            lacking.append(_pooled(folder, embedder, query, vector, others))
    return answerable + lacking


def _offers(folder: DataFolder, embedder: Embedder, source: EvidenceSource) -> Callable[[Query, Float32], list[str]]:
    """Return what gives the ids of a question's candidates, evidence first."""
    bm25 = Bm25(b=0.75)
    articles: dict[str, dict[str, None]] = {"": dict.fromkeys(folder.documents)}
    if source.within == "article":
        for query in folder.queries:
            known = [name for name in query.gold if name in folder.documents]
            articles.setdefault(str(query.extra.get("article")), {}).update(dict.fromkeys(known))

    @cache
    def pool(article: str) -> tuple[list[str], Float32]:
        names = list(articles[article])
        return names, _vectors(folder, embedder, names)

    def offers(query: Query, vector: Float32) -> list[str]:
        if source.within == "candidates":
            if query.candidates is None:
                raise DataError(f"{folder.path} has questions without candidates; take them from within the corpus")
            return list(query.candidates)
        names, vectors = pool(str(query.extra.get("article")) if source.within == "article" else "")
        others = np.array([row for row, name in enumerate(names) if name not in query.gold], dtype=np.intp)
        num_others = max(0, source.num_candidates - len(query.gold))
        if not source.num_candidates or len(others) <= num_others:
            return [*query.gold, *(names[row] for row in others.tolist())]
        near = others[np.argsort(-(vectors[others] @ vector), kind="stable")[: 3 * num_others]].tolist()
        chosen, rest = near[: num_others - num_others // 2], near[num_others - num_others // 2 :]
        # BM25 ranks only passages near by vector: those that merely share words are easy negatives.
        texts = [passage(folder.documents[names[row]]) for row in rest]
        values = bm25.scorer(query.question, texts)([(row,) for row in range(len(rest))])
        by_words = [rest[row] for row in np.argsort(-values, kind="stable")[: num_others // 2].tolist()]
        return [*query.gold, *(names[row] for row in chosen + by_words)]

    return offers


def _vectors(folder: DataFolder, embedder: Embedder, names: Sequence[str]) -> Float32:
    """Return the embeddings of passages, `[len(names), 384]`."""
    return embedder.embed([passage(folder.documents[name]).text for name in names])


def _pooled(folder: DataFolder, embedder: Embedder, query: Query, vector: Float32, names: Sequence[str]) -> Pooled:
    cosines = _vectors(folder, embedder, names) @ vector if names else np.zeros(0)
    ranking = np.argsort(-cosines, kind="stable").tolist()
    ranked = [names[row] for row in ranking]
    rank_of = {name: index for index, name in enumerate(ranked)}
    ranks = [rank_of[name] for name in query.gold if name in rank_of]
    chunks = tuple(passage(folder.documents[name]) for name in ranked)
    golds = (tuple(sorted(ranks)),) if ranks and len(ranks) == len(query.gold) else ()
    return Pooled(query.id, query.question, chunks, tuple(cosines[ranking].tolist()), tuple(ranks), golds)


def questions_by_unit(
    source: EvidenceSource, data: str, encoder: TextEncoder, units: Sequence[str]
) -> dict[str, list[Pooled]]:
    """Return the questions of a source below `data`, their candidates cut into each of some units."""
    folder = open_folder(source, data)
    # So many at once, because all states of a batch are in memory.
    embedder = CachedEmbedder(MiniLMEmbedder(encoder=encoder), batch=256)
    queries = questions_of(folder, source)
    whole, by_id = pools(folder, embedder, source, queries), {query.id: query for query in queries}
    by_unit = {}
    for name in units:
        cuts = (cut(pooled, by_id[pooled.id], folder, unit_size(name)) for pooled in whole)
        by_unit[name] = [pooled for pooled in cuts if pooled is not None]
    return by_unit


def cut(pooled: Pooled, query: Query, folder: DataFolder, size: int | None) -> Pooled | None:
    """Return the question with the units of its candidates; None if its evidence is not among these."""
    if size is None:
        return pooled
    candidates = list(map(Candidate, pooled.chunks, pooled.similarities))
    problem = cut_problem(SelectionProblem(pooled.question, candidates, make_tokens(), 1), size)
    chunks = tuple(problem.chunks)
    golds = _golds(query, folder, chunks) if pooled.golds else ()
    if pooled.golds and not golds:
        return None
    return Pooled(pooled.id, pooled.question, chunks, tuple(map(float, problem.relevance)), (), golds)


def _golds(query: Query, folder: DataFolder, chunks: Sequence[Chunk]) -> tuple[tuple[int, ...], ...]:
    """Return the sets of chunks each of which may be the evidence, the indices of each ascending."""
    known = supporting_spans(query, folder.documents)
    holding = [frozenset(row for row, chunk in enumerate(chunks) if span.is_held_by(chunk)) for span in known]
    if known and known[0].known == "fact":
        return (tuple(sorted(frozenset().union(*holding))),) if all(holding) else ()
    telling = frozenset().union(*holding)
    # Units are ordered best first; those that hold an answer are kept, whatever their rank.
    most = int(MAX_SETS ** (1 / len(query.gold)))
    by_passage = []
    for name in query.gold:
        rows = [row for row, chunk in enumerate(chunks) if source_of(chunk).id == name]
        if len(query.gold) == 1 and telling:
            rows = [row for row in rows if row in telling]
        by_passage.append(sorted(rows, key=lambda row: row not in telling)[:most])
    sets = {tuple(sorted(rows)) for rows in product(*by_passage) if not telling or telling.intersection(rows)}
    return tuple(sorted(sets))
