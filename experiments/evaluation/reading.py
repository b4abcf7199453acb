"""A reader that remembers: methods often choose the same, and summaries are read beside what they were made from."""

from __future__ import annotations

from collections.abc import Sequence

from corag.memory.cache import BoundedCache
from corag.types import Answer, Reader


class RememberingReader:
    """Reads each context once for each question while it is remembered.

    Args:
        reader: Reads.
        remembered: Answers that are kept, with their contexts.
    """

    def __init__(self, reader: Reader, *, remembered: int = 256) -> None:
        self.name = reader.name
        self._reader = reader
        self._answers: BoundedCache[tuple[str, str], Answer] = BoundedCache(remembered)

    def answer(self, query: str, context: str) -> Answer:
        """Return the answer that the context supports."""
        return self.answer_many([query], [context])[0]

    def answer_many(self, queries: Sequence[str], contexts: Sequence[str]) -> list[Answer]:
        """Return the answer of each question in the context at its place, all read together by a reader that can."""
        keys = list(zip(queries, contexts, strict=True))
        known = self._answers.take(keys)
        unread = [key for key in dict.fromkeys(keys) if key not in known]
        if unread:
            fresh = dict(zip(unread, self._read(unread), strict=True))
            self._answers.put(fresh)
            known.update(fresh)
        return [known[key] for key in keys]

    def _read(self, pairs: Sequence[tuple[str, str]]) -> list[Answer]:
        if hasattr(self._reader, "answer_many"):
            queries, contexts = map(list, zip(*pairs, strict=True))
            answers: list[Answer] = self._reader.answer_many(queries, contexts)
            return answers
        return [self._reader.answer(query, context) for query, context in pairs]
