"""One question, from an index to an answer: each step one object, one call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from corag.errors import IndexMismatchError
from corag.index import ChunkIndex, Retrieval
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
    index: ChunkIndex,
    embedder: Embedder,
    selector: Selector,
    reader: Reader,
    *,
    budget_tokens: int,
    num_candidates: int = 20,
    retrieval: Retrieval = "hybrid",
) -> Reply:
    """Answer a question from an index.

    Args:
        question: The question.
        index: Where candidates come from.
        embedder: The index's embedder.
        selector: Chooses among the candidates.
        reader: Answers from what was chosen.
        budget_tokens: The most tokens of the context.
        num_candidates: How many chunks the index offers.
        retrieval: How the index finds them; see `ChunkIndex.retrieve`.

    Raises:
        InputError: The question is empty or the budget below 1.
        IndexMismatchError: The embedder is not the index's.
    """
    check_query(question)
    check_budget(budget_tokens)
    if embedder.name != index.embedder_name:
        raise IndexMismatchError(
            f"the index at {index.uri} was made by embedder {index.embedder_name!r}, not by {embedder.name!r}; "
            "use that embedder"
        )
    marks = [time.perf_counter()]

    def mark() -> None:
        marks.append(time.perf_counter())

    vector = embedder.embed([question])[0]
    mark()
    candidates = index.retrieve(question, vector, num_candidates, retrieval)
    mark()
    selection = selector.select(question, candidates, budget_tokens)
    mark()
    answer = reader.answer(question, selection.text)
    mark()
    steps = ("embed", "retrieve", "select", "read")
    seconds = {step: after - before for step, before, after in zip(steps, marks, marks[1:], strict=False)}
    return Reply(question, answer, selection, seconds)
