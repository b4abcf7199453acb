"""One question, from an index to an answer: each step one object, one call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corag.budget import AUTO, Budget, BudgetFor, Counts, reader_and_tokens, tokens_setting
from corag.candidates import Retriever, Text, as_candidates, candidates_of, with_cosines
from corag.checks import MOST_CANDIDATES, check_count, check_query
from corag.errors import InputError
from corag.index import ChunkIndex, Retrieval, Where
from corag.models.cached import CachedEmbedder, vectors_by
from corag.models.runtime import recording
from corag.naming import Spelling, spelling
from corag.readers.passages import JudgingReader, spans_of
from corag.registry import EMBEDDERS, SELECTORS, check_untrusted
from corag.selectors.base import ComparingSelector
from corag.selectors.problem import promising
from corag.selectors.raptor.tree import tree_setting
from corag.shown import Reading, Shown, markers, probability_of, readings, shown
from corag.text.documents import SEPARATOR, citation
from corag.text.visible import to_json
from corag.types import Answer, Candidate, Embedder, Reader, Selection, Selector, StreamingReader, TokenCounter


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer and how it came about.

    Attributes:
        question: The question.
        answer: What the reader said; its confidence is that of what is shown.
        selection: What it was given to read.
        seconds: Wall-clock seconds of each step: `embed`, `retrieve`, `select`, `read`.
        counts: What the prompt cost, and how it was counted.
        parts: How `selector`, `reader` and `embedder` are spelled, to build them again.
        models: Each model that ran: where, in which precision, and by what; see `corag.models.runtime.recording`.
        read: What was read for each question that the question consists of; none if the reader judges no passages.
    """

    question: str
    answer: Answer
    selection: Selection
    seconds: Mapping[str, float]
    counts: Counts
    parts: Mapping[str, str] = field(default_factory=dict)
    models: Sequence[Mapping[str, str]] = ()
    read: Sequence[Reading] = ()

    def __post_init__(self) -> None:
        if self.read:  # one confidence: the reader's in its span alone went into it
            object.__setattr__(self, "answer", replace(self.answer, confidence=probability_of(self.read)))

    @property
    def shown(self) -> Shown:
        """What a person is shown: headline, label, text and passages."""
        return shown(self.answer, self.selection, self.read)

    @property
    def found(self) -> bool:
        """Whether there is an answer, by a language model or likely enough."""
        return self.shown.found

    def to_dict(self) -> dict[str, Any]:
        """Return what `corag ask --json` prints: what is shown, and how it came about."""
        selection = self.selection
        spans = spans_of(selection) or [None] * len(selection)
        numbers = markers(selection, cited=bool(self.answer.citations))
        return {
            "question": self.question,
            **self.shown.to_dict(),
            "cut": self.answer.cut,
            "usage": {"prompt_tokens": self.answer.prompt_tokens, "answer_tokens": self.answer.answer_tokens},
            "chunks": [
                {
                    "id": chunk.id,
                    "text": chunk.text,
                    "citation": citation(chunk),
                    "marker": number,
                    "span": None if span is None else list(span),
                    "metadata": dict(chunk.metadata),
                }
                for chunk, number, span in zip(selection.chunks, numbers, spans, strict=True)
            ],
            **selection.summary(),
            **self.counts._asdict(),
            "seconds": dict(self.seconds),
            "models": [dict(model) for model in self.models],
            "parts": dict(self.parts),
        }


def ask(
    question: str,
    index: ChunkIndex | str | Path | Sequence[Text] | Retriever,
    *,
    budget_tokens: int = 1024,
    method: Spelling | Selector = "corag",
    reader: Spelling | Reader = "minilm-reader",
    embedder: Spelling | Embedder | None = None,
    num_candidates: int = 20,
    retrieval: Retrieval | None = None,
    where: Where | None = None,
    tokenizer: Spelling | TokenCounter = AUTO,
    budget_for: BudgetFor = "prompt",
    on_token: Callable[[str], None] | None = None,
    **settings: Any,
) -> Reply:
    """Answer a question from an index, from texts, or from what a retriever finds.

    Args:
        question: The question.
        index: An index, or its path; texts as `corag.select` takes them, which are compared with the question; or a
            retriever: a callable that takes the question and `num_candidates` and returns texts, best first, whose
            ranking and similarities are kept.
        budget_tokens: Maximum tokens of the prompt; for a reader without a prompt, such as `minilm-reader`, of the
            context.
        method: The selector: name, or object with a token counter of its own.
        reader: Name or object.
        embedder: Embedder of the question: name or object; by default the index's, and `minilm` for texts. Texts of a
            retriever are embedded only if the selector compares similarities and the retriever gives none.
        num_candidates: How many chunks or texts the selector gets.
        retrieval: How the index ranks them; see `ChunkIndex.retrieve`. By default `hybrid`.
        where: Filter of chunks by metadata; see `ChunkIndex.retrieve`.
        tokenizer: Token counter: name or object; by default the tokenizer of the reader's model.
        budget_for: What the budget covers: the whole `prompt`, or the `context` alone.
        on_token: Called with each piece of the answer as it is written, if the reader is a `StreamingReader`.
        settings: Settings of a selector given by name, such as `unit`, as for `corag.select`.

    Raises:
        InputError: An argument is of a wrong type or out of range; the retriever is asynchronous (use `aask`); the
            prompt does not fit the budget, or prompt and answer do not fit the model's window.
        IndexMismatchError: There is no complete index, or the embedder is not the index's.
    """
    check_query(question)
    Budget(budget_tokens, None, budget_for)
    check_count("num_candidates", num_candidates, "typical: 10-50", most=MOST_CANDIDATES)
    if where is not None and not isinstance(index, ChunkIndex | str | Path):
        raise InputError("where filters the chunks of an index; filter texts, or in the retriever, before")
    embedding = None if embedder is None else EMBEDDERS.make(embedder)
    opened = ChunkIndex.open(index) if isinstance(index, str | Path) else index
    source = opened if isinstance(opened, ChunkIndex) or callable(opened) else as_candidates(opened)
    if embedding is None:
        embedding = embedder_of(source)
    elif isinstance(source, ChunkIndex):
        source.manifest.require_embedder(embedding.name, embedding.dimension, source.uri)
    reading, counter = reader_and_tokens(reader, tokenizer)
    selecting = SELECTORS.make(method, defaults={**tokens_setting(counter), **tree_setting(method, source)}, **settings)
    budget = Budget(budget_tokens, reading, budget_for)
    budget.for_context(question)  # refuses what leaves no room for a context, before any work
    seconds = dict.fromkeys(("embed", "retrieve", "select", "read"), 0.0)
    with recording() as models:
        if isinstance(source, ChunkIndex):
            with _timed(seconds, "embed"):
                vector = vectors_by(embedding, [question])[0]
            with _timed(seconds, "retrieve"):
                candidates = source.retrieve(question, vector, num_candidates, retrieval or "hybrid", where)
        elif callable(source):
            with _timed(seconds, "retrieve"):
                candidates = candidates_of(source(question, num_candidates), num_candidates)
            if _lacks_similarities(selecting, candidates):
                with _timed(seconds, "embed"):
                    candidates = with_cosines(question, candidates, embedding)
        else:
            with _timed(seconds, "embed"):
                offered = promising(question, source, budget_tokens)
                candidates = with_cosines(question, offered, embedding)[:num_candidates]
        with _timed(seconds, "select"):
            selection = budget.select(selecting, question, candidates)
        if not candidates:
            reason = "the retriever found nothing" if where is None else f"no chunk passed the filter {to_json(where)}"
            selection = replace(selection, trace=replace(selection.trace, reason=reason))
        with _timed(seconds, "read"):
            answer = read(reading, question, selection, on_token)
            parts_read = readings(reading, question, answer, selection)
    budget.warn_if_exceeded(answer.prompt_tokens, counter)
    counts = budget.counts(question, selection.text, getattr(selecting, "tokenizer", counter))
    parts = {"selector": spelling(selecting), "reader": spelling(reading), "embedder": spelling(embedding)}
    return Reply(question, answer, selection, seconds, counts, parts, models(), parts_read)


async def aask(question: str, index: ChunkIndex | str | Path | Sequence[Text] | Retriever, **settings: Any) -> Reply:
    """Answer a question in a thread, without blocking the event loop; see `ask`. The retriever may be asynchronous."""
    if not callable(index):
        return await asyncio.to_thread(ask, question, index, **settings)
    num_candidates = settings.get("num_candidates", 20)
    check_query(question)
    begun_s = time.perf_counter()
    returned = await asyncio.to_thread(index, question, num_candidates)
    found = await returned if isinstance(returned, Awaitable) else returned
    retrieve_s = time.perf_counter() - begun_s
    reply = await asyncio.to_thread(ask, question, lambda *_: found, **settings)
    return replace(reply, seconds={**reply.seconds, "retrieve": retrieve_s})


def embedder_of(source: object) -> CachedEmbedder:
    """Return what questions are embedded by if no embedder is given: the index's own, else the default."""
    if isinstance(source, ChunkIndex):
        return CachedEmbedder(check_untrusted(EMBEDDERS, source.manifest.embedder_name, f"the index at {source.uri}"))
    return CachedEmbedder("minilm")


def read(reader: Reader, question: str, selection: Selection, on_token: Callable[[str], None] | None = None) -> Answer:
    """Return a reader's answer; `on_token` is called with each piece as it is written, if the reader streams."""
    context = selection.text
    if isinstance(reader, JudgingReader):
        return _checked(reader, reader.answer_from(question, selection), context)
    if on_token is None or not isinstance(reader, StreamingReader):
        return _checked(reader, reader.answer(question, context), context)
    with closing(reader.stream(question, context)) as pieces:
        while True:
            try:
                piece = next(pieces)
            except StopIteration as end:
                return _checked(reader, end.value, context)
            on_token(piece)


def _checked(reader: Reader, answer: object, context: str) -> Answer:
    """Return a reader's answer; `InputError` if it is none, or refers to what the context does not have."""
    if not isinstance(answer, Answer):
        raise InputError(f"reader {reader.name!r} returned {answer!r:.80}; it must return an Answer")
    cited = [*answer.citations, *([] if answer.chunk is None else [answer.chunk])]
    parts_are_there = all(0 <= part <= context.count(SEPARATOR) for part in cited)
    if not parts_are_there or not all(0 <= start <= end <= len(context) for start, end in answer.spans):
        raise InputError(
            f"reader {reader.name!r} cites {cited} and quotes {answer.spans}, which the context does not have; give "
            "parts counted from 0, and offsets in the context"
        )
    return answer


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    begun_s = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - begun_s


def _lacks_similarities(selector: Selector, candidates: Sequence[Candidate]) -> bool:
    compares = isinstance(selector, ComparingSelector) and selector.embedder is None
    return compares and bool(candidates) and all(candidate.similarity is None for candidate in candidates)
