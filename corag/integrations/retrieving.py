"""Candidates of a question from an index, for frameworks that ask for a retriever."""

from __future__ import annotations

from pathlib import Path

from corag.checks import check_count, check_query
from corag.errors import IndexMismatchError
from corag.index import ChunkIndex, Retrieval, Where
from corag.models.vectors import vectors_by
from corag.naming import Spelling
from corag.registry import EMBEDDERS, trusted
from corag.registry import embedder as make_embedder
from corag.types import Candidate, Embedder


class IndexRetriever:
    """An index and what embeds its questions.

    Args:
        index: The index, or where it lies.
        embedder: Name or object; by default the index's own.

    Raises:
        IndexMismatchError: There is no whole index, or the embedder is not the index's.
    """

    def __init__(self, index: ChunkIndex | str | Path, embedder: Spelling | Embedder | None = None) -> None:
        self.index = index if isinstance(index, ChunkIndex) else ChunkIndex.open(index)
        if embedder is None:
            embedder = trusted(EMBEDDERS, self.index.embedder_name, f"the index at {self.index.uri}")
        self.embedder = make_embedder(embedder)
        if self.embedder.name != self.index.embedder_name:
            raise IndexMismatchError(
                f"the index at {self.index.uri} was made by embedder {self.index.embedder_name!r}, not by "
                f"{self.embedder.name!r}; use that embedder"
            )

    def candidates(
        self, query: str, k: int, retrieval: Retrieval | None = None, where: Where | None = None
    ) -> list[Candidate]:
        """Return at most `k` candidates, best first; see `ChunkIndex.retrieve`, whose default is `hybrid`."""
        check_query(query)
        check_count("num_candidates", k, "10 to 50 are usual")
        return self.index.retrieve(query, vectors_by(self.embedder, [query])[0], k, retrieval or "hybrid", where)
