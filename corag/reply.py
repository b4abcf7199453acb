"""One question, from an index to an answer: each step one object, one call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from corag.candidates import Text, as_candidates, with_cosines
from corag.checks import check_count
from corag.errors import IndexMismatchError
from corag.index import ChunkIndex, Retrieval
from corag.registry import embedder as make_embedder
from corag.registry import reader as make_reader
from corag.registry import selector as make_selector
from corag.selectors.problem import check_budget, check_query
from corag.text.documents import SEPARATOR
from corag.types import Answer, Embedder, Reader, Selection, Selector


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer and how it came about.

    Attributes:
        question: The question.
        answer: What the reader said.
        selection: What it was given to read.
        seconds: Wall-clock seconds of each step: `embed`, `retrieve`, `select`, `read`.
    """

    question: str
    answer: Answer
    selection: Selection
    seconds: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return what `corag ask --json` prints."""
        selection = self.selection
        return {
            "question": self.question,
            "answer": self.answer.text,
            "confidence": self.answer.confidence,
            "answer_chunk": self._answer_chunk(),
            "budget_tokens": selection.budget_tokens,
            "cost_tokens": selection.cost_tokens,
            "value": selection.value,
            "method": selection.method,
            "chunks": [
                {"id": chunk.id, "text": chunk.text, "metadata": dict(chunk.metadata)} for chunk in selection.chunks
            ],
            "trace": selection.trace.to_dict(),
            "seconds": dict(self.seconds),
        }

    def _answer_chunk(self) -> str | None:
        """Return the id of the chunk that the answer came from; None where the reader cannot say, or for a summary."""
        answer, chunks = self.answer, self.selection.chunks
        if answer.chunk is None or self.selection.text != SEPARATOR.join(chunk.text for chunk in chunks):
            return None
        # A chunk that holds empty lines is several parts to the reader, so characters count.
        parts = self.selection.text.split(SEPARATOR)[: answer.chunk]
        place = answer.spans[0][0] if answer.spans else sum(len(part) + len(SEPARATOR) for part in parts)
        ends = accumulate(len(chunk.text) + len(SEPARATOR) for chunk in chunks)
        return next(chunk.id for chunk, end in zip(chunks, ends, strict=True) if place < end)


def ask(
    question: str,
    index: ChunkIndex | str | Path | Sequence[Text],
    *,
    budget_tokens: int = 1024,
    selector: str | Selector = "corag",
    reader: str | Reader = "minilm-reader",
    embedder: str | Embedder | None = None,
    num_candidates: int = 20,
    retrieval: Retrieval = "hybrid",
) -> Reply:
    """Answer a question from an index or from texts.

    Args:
        question: The question.
        index: An index, where it lies, or texts as `corag.select` takes them, which are compared with the question.
        budget_tokens: The most tokens of the context.
        selector: Chooses among the candidates: name or object.
        reader: Answers from what was chosen: name or object.
        embedder: Embeds the question: name or object; by default the index's, and `minilm` for texts.
        num_candidates: How many chunks or texts are offered to the selector.
        retrieval: How the index finds them; see `ChunkIndex.retrieve`.

    Raises:
        InputError: The question is empty, the budget or the number of candidates below 1, or a text of a wrong type.
        IndexMismatchError: There is no whole index, or the embedder is not the index's.
    """
    check_query(question)
    check_budget(budget_tokens)
    check_count("num_candidates", num_candidates, "10 to 50 are usual")
    embedding = make_embedder(embedder) if isinstance(embedder, str) else embedder
    opened = ChunkIndex.open(index, embedding) if isinstance(index, str | Path) else index
    source = opened if isinstance(opened, ChunkIndex) else as_candidates(opened)
    if embedding is None:
        embedding = make_embedder(source.embedder_name) if isinstance(source, ChunkIndex) else make_embedder()
    elif isinstance(source, ChunkIndex) and embedding.name != source.embedder_name:
        raise IndexMismatchError(
            f"the index at {source.uri} was made by embedder {source.embedder_name!r}, not by {embedding.name!r}; "
            "use that embedder"
        )
    selecting = make_selector(selector) if isinstance(selector, str) else selector
    reading = make_reader(reader) if isinstance(reader, str) else reader
    begun_s = time.perf_counter()
    if isinstance(source, ChunkIndex):
        vector = embedding.embed([question])[0]
        embedded_s = time.perf_counter()
        candidates = source.retrieve(question, vector, num_candidates, retrieval)
    else:
        compared = with_cosines(question, source, embedding)
        embedded_s = time.perf_counter()
        candidates = compared[:num_candidates]
    retrieved_s = time.perf_counter()
    selection = selecting.select(question, candidates, budget_tokens)
    selected_s = time.perf_counter()
    answer = reading.answer(question, selection.text)
    ends = {"embed": embedded_s, "retrieve": retrieved_s, "select": selected_s, "read": time.perf_counter()}
    seconds = {step: end - start for (step, end), start in zip(ends.items(), [begun_s, *ends.values()], strict=False)}
    return Reply(question, answer, selection, seconds)
