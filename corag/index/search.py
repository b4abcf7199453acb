"""Searching an index by vectors, by words, or by both.

Axes: `n` texts, `q` queries, `d` numbers in a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.checks import check_choice, check_count
from corag.errors import IndexMismatchError, InputError
from corag.index.store import (
    CHUNK_COLUMNS,
    CHUNKS,
    REMEDY,
    IndexManifest,
    accessing,
    all_rows,
    connect,
    local_folder,
    open_table,
    read_manifest,
    rows_at,
    to_chunk,
)
from corag.index.where import Where, sql_of
from corag.text.words import minilm_reads
from corag.types import Candidate, Chunk, Embedder

Item = TypeVar("Item", bound=Hashable)

Retrieval = Literal["vector", "text", "hybrid"]
"""How candidates are retrieved: by cosine similarity, by BM25, or by both rankings joined."""

FUSED_DEPTH = 100
"""Hybrid retrieval joins at least this many results of both rankings."""
PROBES = 80
"""Partitions of a large index that a query without a filter searches; docs/scale.md has figures."""
# So many times the wanted rows are ranked again by the true vectors. Each takes 20 us.
_REFINE_FACTOR = 3
# Queries that share one pass over the vectors; bounds the rows held at once.
_QUERIES_PER_PASS = 64
_MISSING = "there is no complete index at {uri}; check the path, or make or finish one with `corag index`"


class Hit(NamedTuple):
    """A row of a search; lower `rank` is better: the cosine distance, or the negative BM25 score."""

    rank: float
    row: int
    columns: Mapping[str, Any]


def _top_k(fetch: Callable[[int], list[list[Hit]]], k: int) -> list[list[Hit]]:
    """Return the first `k` hits per query; LanceDB leaves out ties at random, so more are fetched until none is cut."""
    limit = k + 1
    while True:
        rankings = [sorted(hits, key=lambda hit: hit[:2]) for hits in fetch(limit)]
        if not any(len(hits) >= limit and hits[k - 1].rank == hits[-1].rank for hits in rankings):
            return [hits[:k] for hits in rankings]
        limit *= 8


class ChunkIndex:
    """A complete index, open for reading.

    Attributes:
        uri: Its folder or address.
        manifest: What it says about itself.
    """

    def __init__(self, uri: str, manifest: IndexManifest, table: Any, probes: int) -> None:
        self.uri = uri
        self.manifest = manifest
        self._table = table
        self._probes = probes

    @classmethod
    def build(
        cls,
        uri: str | Path,
        chunks: Iterable[Chunk],
        embedder: Embedder,
        *,
        batch_size: int = 256,
        overwrite: bool = False,
    ) -> ChunkIndex:
        """Embed the chunks and store them, or finish a build that was interrupted.

        Batches that are stored are not embedded again, and a complete index with the same content is opened at once.

        Args:
            uri: Local folder, or object storage: `s3://`, `gs://`, `az://`.
            chunks: What to store, in this order. Ids must be unique, metadata JSON.
            embedder: Embeds `Chunk.text`.
            batch_size: Chunks that are embedded and committed at a time: the most that a kill can cost.
            overwrite: Replace a complete index of other chunks, which stays readable until the new one is complete.

        Raises:
            DataError: No chunks, an id that occurs twice, invalid Unicode, metadata that is not JSON.
            IndexMismatchError: Another index exists and `overwrite` is False; nothing is changed.
            ModelError: The embedder returned something other than one unit vector per text.
            CoragError: The storage cannot be read or written; what was stored so far is kept.
        """
        from corag.index.write import listed, write_index

        write_index(uri, listed(chunks), embedder, batch_size=batch_size, overwrite=overwrite)
        return cls.open(uri, embedder)

    @classmethod
    def open(cls, uri: str | Path, embedder: Embedder | None = None, *, probes: int = PROBES) -> ChunkIndex:
        """Open a complete index; writes nothing, now or later.

        Args:
            uri: Its folder or address.
            embedder: What will embed the queries; checked against the one that embedded the chunks.
            probes: How many of the partitions of an index of 10,000 chunks or more a search by vectors uses.

        Raises:
            IndexMismatchError: There is no index, it is half-written, damaged, of an unknown version, or was
                made by another embedder.
            CoragError: The storage cannot be read.
        """
        check_count("probes", probes, "typical: 10-100")
        folder = local_folder(uri)
        # LanceDB would create the folder.
        if folder is not None and not folder.is_dir():
            raise IndexMismatchError(_MISSING.format(uri=uri))
        with accessing(uri, "read"):
            database = connect(uri)
            manifest = read_manifest(database, uri)
            if manifest is None:
                raise IndexMismatchError(_MISSING.format(uri=uri))
            table = open_table(database, CHUNKS, manifest.version)
            if table is None or table.count_rows() != manifest.num_chunks:
                raise IndexMismatchError(
                    f"the index at {uri} is damaged: it should hold {manifest.num_chunks} chunks; {REMEDY}"
                )
        if embedder is not None:
            manifest.require_embedder(embedder.name, embedder.dimension, uri)
        return cls(str(uri), manifest, table, probes)

    def __len__(self) -> int:
        return self.manifest.num_chunks

    def retrieve(
        self, query: str, vector: ArrayLike, k: int, retrieval: Retrieval = "hybrid", where: Where | None = None
    ) -> list[Candidate]:
        """Return the candidates of a question.

        Args:
            query: The question; no character in it has a special meaning. `text` matches its words, lower-cased and
                stemmed as English, without stop words.
            vector: Its embedding, `[d]`, of any length but 0.
            k: Candidates wanted.
            retrieval: `vector` ranks by cosine; `text` ranks the chunks that share words with the question by BM25;
                `hybrid` joins both rankings with `reciprocal_rank_fusion`. On 12 sets of questions its candidates hold
                as much of the evidence as those of vectors or more (k = 20; HotpotQA .96 against .90). Of a question in
                a script that the index's embedder does not read, words alone count.
            where: Only chunks with this metadata; see `corag.index.where.Where`.

        Returns:
            At most `k` candidates, best first by `retrieval`; ties in the order of the chunks. `similarity` is the
            cosine to `vector` throughout, which need not fall with the ranking of `text` and `hybrid`; `rank` does.

        Raises:
            InputError: A setting or the shape of `vector` is wrong, or `where` is not a filter.
        """
        return self.retrieve_many([query], np.asarray(vector)[np.newaxis], k, retrieval, where)[0]

    def retrieve_many(
        self,
        queries: Sequence[str],
        vectors: ArrayLike,
        k: int,
        retrieval: Retrieval = "hybrid",
        where: Where | None = None,
    ) -> list[list[Candidate]]:
        """Return for each question, with its embedding in `vectors`, `[q, d]`, what `retrieve` returns."""
        check_choice("retrieval", retrieval, Retrieval)
        check_count("k", k, "typical: 20")
        embeddings = self._checked_queries(vectors)
        wanted = sql_of(where)
        if retrieval == "vector":
            # A look-up of rows takes as long as the search: this one fetches the chunks with their distances.
            nearest = self._nearest(embeddings, k, wanted, CHUNK_COLUMNS)
            if where and not any(nearest):
                self._require_fields(where)
            return [[self._candidate(hit.columns, 1.0 - hit.rank) for hit in hits] for hits in nearest]
        depth = max(k, FUSED_DEPTH) if retrieval == "hybrid" else k
        rankings = [[self._matching(query, depth, wanted)] for query in queries]
        if retrieval == "hybrid":
            nearest = self._nearest(embeddings, depth, wanted)
            reads = [self.manifest.embedder_name != "minilm" or minilm_reads([query]) for query in queries]
            rankings = [
                [near, *by_text] if read or not by_text[0] else by_text
                for near, by_text, read in zip(nearest, rankings, reads, strict=True)
            ]
        candidates = []
        for embedding, of_query in zip(embeddings, rankings, strict=True):
            fused = reciprocal_rank_fusion([[hit.row for hit in hits] for hits in of_query])
            with accessing(self.uri, "read"):
                found = rows_at(self._table, fused[:k], [*CHUNK_COLUMNS, "vector"])
            rows = [found[row] for row in fused[:k]]
            stored = np.array([row["vector"] for row in rows]).reshape(len(rows), self.manifest.dimension)
            cosines = stored @ embedding / (np.linalg.norm(stored, axis=1) * np.linalg.norm(embedding))
            candidates.append([self._candidate(row, cosines[rank], rank) for rank, row in enumerate(rows)])
        if where and not any(candidates):
            self._require_fields(where)
        return candidates

    def _require_fields(self, where: Where) -> None:
        """Raise `InputError` if a filter, by which nothing is found, names a field that no chunk has."""
        fields = sorted({name for chunk in self.chunks() for name in chunk.metadata})
        if unknown := [name for name in where if name not in fields]:
            raise InputError(f"where names {unknown[0]!r}, a field that no chunk has; there are {', '.join(fields)}")

    def chunks(self) -> Iterator[Chunk]:
        """Iterate over all chunks as stored: in the order given; after an update, in any order."""
        with accessing(self.uri, "read"):
            for batch in all_rows(self._table, CHUNK_COLUMNS).to_batches():
                yield from map(to_chunk, batch.to_pylist())

    def vectors(self) -> NDArray[np.float32]:
        """Return the vectors of all chunks, `[n, d]`, in the order of `chunks`."""
        with accessing(self.uri, "read"):
            stored = all_rows(self._table, ["vector"])["vector"].combine_chunks()
        vectors: NDArray[np.float32] = stored.flatten().to_numpy().reshape(-1, self.manifest.dimension)
        return vectors

    def _candidate(self, row: Mapping[str, Any], cosine: float, rank: int | None = None) -> Candidate:
        # Rounding can carry a cosine past 1.
        return Candidate(to_chunk(row), float(np.clip(cosine, -1, 1)), embedder=self.manifest.embedder_name, rank=rank)

    def _checked_queries(self, vectors: ArrayLike) -> NDArray[np.float32]:
        queries = np.asarray(vectors, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.manifest.dimension:
            raise InputError(
                f"a query vector must have {self.manifest.dimension} dimensions, as of {self.manifest.embedder_name}, "
                f"got an array of shape {queries.shape[1:]}; embed queries with the index's embedder"
            )
        if not np.isfinite(queries).all() or not queries.any(axis=1).all():
            raise InputError("a query vector must be finite and not all zeros; check the embedder")
        return queries

    def _nearest(
        self, queries: NDArray[np.float32], k: int, where: str | None, columns: Sequence[str] = ()
    ) -> list[list[Hit]]:
        """Return the `k` nearest rows of each query by cosine, with some of their columns."""
        nearest: list[list[Hit]] = []
        for start in range(0, len(queries), _QUERIES_PER_PASS):
            search = partial(self._search, queries[start : start + _QUERIES_PER_PASS], where, columns)
            nearest += _top_k(search, min(k, len(self)))
        return nearest

    def _search(
        self, queries: NDArray[np.float32], where: str | None, columns: Sequence[str], limit: int
    ) -> list[list[Hit]]:
        hits: list[list[Hit]] = []
        # The nearest partitions may hold fewer rows than are wanted, and few that a filter leaves: then all (0) are
        # searched. Without partitions LanceDB ignores these settings.
        for max_probes in (self._probes, 0) if where is None else (0,):
            search = self._table.search(list(queries), vector_column_name="vector").distance_type("cosine")
            search.minimum_nprobes(self._probes).maximum_nprobes(max_probes).refine_factor(_REFINE_FACTOR)
            rows = self._best(search, limit, where, ["_distance", *columns])
            hits = [[] for _ in queries]
            for row in rows:
                hits[row.get("query_index", 0)].append(Hit(row["_distance"], row["_rowid"], row))
            if min(map(len, hits)) >= min(limit, len(self)):
                break
        return hits

    def _matching(self, query: str, k: int, where: str | None) -> list[Hit]:
        from lancedb.query import MatchQuery

        words = MatchQuery(query.encode("utf-8", "replace").decode(), "text")

        def fetch(limit: int) -> list[list[Hit]]:
            rows = self._best(self._table.search(words, query_type="fts"), limit, where, ["_score"])
            return [[Hit(-row["_score"], row["_rowid"], row) for row in rows]]

        return _top_k(fetch, min(k, len(self)))[0]

    def _best(self, search: Any, limit: int, where: str | None, columns: Sequence[str]) -> list[dict[str, Any]]:
        search = search.limit(limit).select(list(columns)).with_row_id(True)
        with accessing(self.uri, "read"):
            rows: list[dict[str, Any]] = (search if where is None else search.where(where)).to_arrow().to_pylist()
        return rows


def reciprocal_rank_fusion(rankings: Sequence[Sequence[Item]]) -> list[Item]:
    """Join rankings into one; of equal scores the item that the first ranking names first comes first.

    An item's score is the sum of `1 / (60 + rank)` over the rankings that hold it, with ranks from 1 (Cormack et al.,
    "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR 2009).
    """
    scores: dict[Item, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            scores[item] = scores.get(item, 0.0) + 1 / (60 + rank)
    return sorted(scores, key=lambda item: -scores[item])
