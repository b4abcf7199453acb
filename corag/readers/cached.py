"""A reader that reads each context once for each question."""

from __future__ import annotations

from collections.abc import Sequence

from corag.memory import LRU, megabytes
from corag.naming import spelling
from corag.types import Answer, BatchReader, Reader


class CachedReader:
    """Answers from a cache where methods or budgets give the same context to the same question.

    Args:
        reader: Answers new contexts, together where it has `answer_many`.
        cache_mb: Megabytes of contexts and answers that are kept; 0 keeps none.
    """

    def __init__(self, reader: Reader, *, cache_mb: float = 16) -> None:
        self.name = reader.name
        self._reader = reader
        self._answers: LRU[tuple[str, str], Answer] = LRU(megabytes(cache_mb), kind="answers")

    def __str__(self) -> str:
        return spelling(self._reader)

    def answer(self, query: str, context: str) -> Answer:
        """Return the answer that the context supports."""
        return self.answer_many([query], [context])[0]

    def answer_many(self, queries: Sequence[str], contexts: Sequence[str]) -> list[Answer]:
        """Return the answer to each question from the context at its place."""
        return self._answers.get_many(list(zip(queries, contexts, strict=True)), self._read)

    def _read(self, pairs: Sequence[tuple[str, str]]) -> list[Answer]:
        if isinstance(self._reader, BatchReader):
            queries, contexts = map(list, zip(*pairs, strict=True))
            return self._reader.answer_many(queries, contexts)
        return [self._reader.answer(query, context) for query, context in pairs]
