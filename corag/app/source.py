"""Where questions and their candidates come from: an index, the questions of a data folder, or both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from corag.candidates import with_cosines
from corag.errors import InputError
from corag.index import ChunkIndex, Retrieval
from corag.models.cached import CachedEmbedder, vectors_by
from corag.naming import Spelling
from corag.reply import embedder_of
from corag.text.data import DataFolder, Query, is_evidence
from corag.text.documents import passage
from corag.text.support import SupportingSpan, supporting_spans
from corag.text.units import UnitChunk, source_of
from corag.text.visible import visible
from corag.types import Candidate, Chunk, Embedder

PAGE = 20
"""Questions of a data folder that are listed at once."""
NUM_EXAMPLES, MAX_READ = 3, 2000
"""Examples that are offered, and chunks that are read for them."""


@dataclass(frozen=True)
class Source:
    """An index, a data folder, or both; the index then serves questions without candidates of their own.

    `embedder` embeds questions, and the candidates of a data folder; by default it is the index's own. Questions of the
    data folder are those of `split`, None for all.
    """

    index: ChunkIndex | None
    data: DataFolder | None
    embedder: Spelling | Embedder | None = None
    split: str | None = None
    num_candidates: int = 20
    retrieval: Retrieval = "hybrid"

    def __post_init__(self) -> None:
        if self.index is None and self.data is None:
            raise InputError("there is nothing to ask: give an index (--index), a data folder (--data), or both")
        lacking = [query.id for query in self.queries if query.candidates is None]
        if self.index is None and lacking and self.data is not None:
            raise InputError(
                f"question {lacking[0]!r} of {self.data.path} has no candidates of its own; give an index of its "
                f"corpus, made with: corag index --data {self.data.path} --out runs/index"
            )

    @cached_property
    def cached_embedder(self) -> CachedEmbedder:
        """What embeds."""
        return CachedEmbedder(self.embedder) if self.embedder is not None else embedder_of(self.index)

    @cached_property
    def queries(self) -> list[Query]:
        """The questions that are offered, in the order of the file."""
        if self.data is None:
            return []
        return list(self.data.queries) if self.split is None else self.data.split(self.split)

    def about(self) -> dict[str, Any]:
        """Return names and sizes."""
        return {
            "index": None if self.index is None else {"name": self.index.uri, "chunks": len(self.index)},
            "data": None if self.data is None else {"name": self.data.path.name, "passages": len(self.data.documents)},
            "questions": len(self.queries),
            "examples": self._subjects(),
        }

    def _subjects(self) -> list[str]:
        """Return the main titles of a few indexed documents."""
        chunks = () if self.index is None else islice(self.index.chunks(), MAX_READ)
        titles = ((chunk.metadata.get("headings") or [chunk.metadata.get("title")])[0] for chunk in chunks)
        return list(dict.fromkeys(str(title) for title in titles if title))[:NUM_EXAMPLES]

    def listed(self, text: str, start: int) -> dict[str, Any]:
        """Return the questions that hold all words of a text, `PAGE` of them from `start`, each with its number."""
        words = text.casefold().split()
        questions = [query.question.casefold() for query in self.queries]
        numbers = [number for number, question in enumerate(questions) if all(word in question for word in words)]
        shown = [{"number": number, "question": self.queries[number].question} for number in numbers[start:][:PAGE]]
        return {"total": len(numbers), "start": start, "questions": shown}

    def query(self, number: int | None, question: str) -> Query | None:
        """Return the question of that number; None if there is none or the text was changed, which needs an index."""
        if number is not None:
            if not 0 <= number < len(self.queries):
                raise InputError(f"number is {number}; it must be from 0 to {len(self.queries) - 1}")
            # A page shows control characters, and sends back what it shows.
            if visible((query := self.queries[number]).question) == visible(question):
                return query
        if self.index is None:
            raise InputError(
                "questions of your own need an index; start the app with --index, or pick a question of the data"
            )
        return None

    def candidates(self, question: str, query: Query | None) -> list[Candidate]:
        """Return the candidates of a question, best first, each with its cosine."""
        if query is not None and query.candidates is not None and self.data is not None:
            own = [Candidate(passage(self.data.documents[name])) for name in query.candidates]
            return with_cosines(question, own, self.cached_embedder)
        assert self.index is not None
        vector = vectors_by(self.cached_embedder, [question])[0]
        return self.index.retrieve(question, vector, self.num_candidates, self.retrieval)

    def evidence(self, query: Query | None) -> Evidence | None:
        """Return what is known about the evidence of a question; None where nothing is."""
        if query is None or not query.gold or self.data is None:
            return None
        return Evidence(query.gold, supporting_spans(query, self.data.documents))


@dataclass(frozen=True)
class Evidence:
    """The evidence of a question: passages or spans of them, and the sentences that support the answer, if known."""

    gold: tuple[str, ...]
    sentences: tuple[SupportingSpan, ...] = ()

    def marks(self, chunk: Chunk) -> bool:
        """Return whether a chunk is evidence; a sentence, only if it supports the answer."""
        if isinstance(chunk, UnitChunk) and self.sentences:
            return any(span.is_held_by(chunk) for span in self.sentences)
        return any(is_evidence(source_of(chunk), name) for name in self.gold)

    def found(self, chunks: tuple[Chunk, ...]) -> int:
        """Return how many of the gold entries the chunks, or the passages that they stand in, hold."""
        return sum(any(is_evidence(source_of(chunk), name) for chunk in chunks) for name in self.gold)
