"""One question, from an index to an answer: each step one object, one call."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from corag.budget import AUTO, Budget, BudgetFor, Counts, reader_and_tokens, tokens_setting
from corag.candidates import Retriever, Text, as_candidates, candidates_of, is_async, with_cosines
from corag.checks import MOST_CANDIDATES, check_count, check_query
from corag.errors import IndexMismatchError, InputError
from corag.index import ChunkIndex, Retrieval, Where
from corag.models.cached import CachedEmbedder, vectors_by
from corag.models.runtime import recording
from corag.naming import Spelling, spelling
from corag.readers.context import closest
from corag.registry import EMBEDDERS, SELECTORS, trusted
from corag.registry import embedder as make_embedder
from corag.selectors.base import ComparingSelector
from corag.selectors.raptor.tree import tree_setting
from corag.text.documents import SEPARATOR, citation
from corag.text.units import assemble
from corag.types import Answer, Candidate, Embedder, Reader, Selection, Selector, StreamingReader, TokenCounter

DEFAULT_EMBEDDER = "minilm"
Span = tuple[int, int]

CERTAINTIES = ((0.8, "very likely"), (0.5, "likely"), (0.25, "possibly"), (0.0, "a guess"))
"""What a confidence is called from which value on."""

_SPACE = re.compile(r"\s+")


class Quote(NamedTuple):
    """A sentence that an answer is based on.

    Attributes:
        text: The sentence, on one line.
        marked: Span of the answer in it; None if the sentence itself is the answer.
        start: Where it begins in the context.
    """

    text: str
    marked: Span | None
    start: int

    @property
    def pieces(self) -> tuple[str, str, str]:
        """The sentence before the answer, the answer, and the rest."""
        start, end = self.marked or (0, 0)
        return self.text[:start], self.text[start:end], self.text[end:]


def quotes(answer: Answer, context: str) -> list[Quote]:
    """Return the sentences that an answer is based on, in the order of the context.

    The answer is marked in a single sentence; several are an explanation, which is the answer itself.
    """
    quoted = []
    for start, end in answer.sentence_spans:
        alone = answer.spans if len(answer.sentence_spans) == 1 else ()
        inside = [span for span in alone if start <= span[0] and span[1] <= end and span != (start, end)]
        first, last = inside[0] if inside else (start, start)
        cuts = [(start, first), (first, last), (last, end)]
        before, said, after = (_SPACE.sub(" ", context[slice(*cut)]) for cut in cuts)
        marked = (len(before), len(before) + len(said)) if inside else None
        quoted.append(Quote(before + said + after, marked, start))
    return quoted


def certainty(confidence: float | None) -> str | None:
    """Return a confidence in words; see `CERTAINTIES`."""
    return None if confidence is None else next(name for least, name in CERTAINTIES if confidence >= least)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer and how it came about.

    Attributes:
        question: The question.
        answer: What the reader said.
        selection: What it was given to read.
        seconds: Wall-clock seconds of each step: `embed`, `retrieve`, `select`, `read`.
        counts: What the prompt cost, and how it was counted.
        parts: How `selector`, `reader` and `embedder` are spelled, to build them again.
        models: Each model that ran: where, in which precision, and by what; see `corag.models.runtime.recording`.
    """

    question: str
    answer: Answer
    selection: Selection
    seconds: Mapping[str, float]
    counts: Counts
    parts: Mapping[str, str] = field(default_factory=dict)
    models: Sequence[Mapping[str, str]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return what `corag ask --json` prints."""
        selection = self.selection
        return {
            "question": self.question,
            "answer": self.answer.text,
            "confidence": self.answer.confidence,
            "certainty": self.certainty,
            "found": self.found,
            "answerable": self.answer.answerable,
            "sentences": [
                {"text": quote.text, "marked": quote.marked and list(quote.marked), "chunk": self.chunk_at(quote.start)}
                for quote in self.quotes
            ],
            "answer_chunk": self.answer_chunk,
            "citations": self.citations,
            "cut": self.answer.cut,
            "usage": {"prompt_tokens": self.answer.prompt_tokens, "answer_tokens": self.answer.answer_tokens},
            "cost_tokens": selection.cost_tokens,
            **self.counts._asdict(),
            "value": selection.value,
            "method": selection.method,
            "chunks": [
                {
                    "id": chunk.id,
                    "text": chunk.text,
                    "citation": citation(chunk),
                    "marker": self.marker(index),
                    "span": list(self.spans[index]) if self.spans else None,
                    "metadata": dict(chunk.metadata),
                }
                for index, chunk in enumerate(selection.chunks)
            ],
            "trace": selection.trace.to_dict(),
            "seconds": dict(self.seconds),
            "models": [dict(model) for model in self.models],
            "parts": dict(self.parts),
        }

    @property
    def found(self) -> bool:
        """Whether the documents answer the question according to the reader."""
        return self.answer.found

    @property
    def quotes(self) -> list[Quote]:
        """The sentences that the answer is based on, with the answer marked in them."""
        return quotes(self.answer, self.selection.text)

    @property
    def certainty(self) -> str | None:
        """The reader's confidence in words; None if it has none, or found no answer.

        For an explanation, it is the probability that the documents answer the question.
        """
        answer = self.answer
        explains = len(answer.sentence_spans) > 1 and answer.spans and answer.answerable is not None
        return certainty(answer.answerable if explains else answer.confidence) if self.found else None

    @property
    def answer_chunk(self) -> str | None:
        """Id of the chunk that the answer came from; None if it is unknown, and for a summary."""
        answer = self.answer
        if answer.chunk is None:
            return None
        return self.chunk_at(answer.spans[0][0]) if answer.spans else self._chunk_of(answer.chunk)

    @property
    def answer_chunks(self) -> tuple[str, ...]:
        """Ids of the chunks that the answer is based on: those of its sentences, else `answer_chunk`."""
        chunks = [self.chunk_at(quote.start) for quote in self.quotes] or [self.answer_chunk]
        return tuple(dict.fromkeys(chunk for chunk in chunks if chunk is not None))

    @property
    def citations(self) -> dict[str, str | None]:
        """Citation marker of the answer -> id of the chunk that it refers to; None for a summary.

        If sentences are chosen, a marker refers to a whole document; the sentence is the one that shares most words
        with the answer.
        """
        return {f"[{part + 1}]": self._chunk_of(part) for part in self.answer.citations}

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Character span of each chunk in the context; none for a summary."""
        selection = self.selection
        if selection.spans:
            return selection.spans
        text, spans = assemble(selection.chunks)  # a user's own selector may not give spans
        return tuple(spans) if selection.text == text else ()

    def marker(self, chunk: int) -> str | None:
        """Return the citation marker of the chunk with this index in a context with markers; None for a summary."""
        return f"[{self.selection.text.count(SEPARATOR, 0, self.spans[chunk][0]) + 1}]" if self.spans else None

    def _chunk_of(self, part: int) -> str | None:
        """Return the id of the chunk in a part of the context; a chunk with empty lines is several parts."""
        parts = self.selection.text.split(SEPARATOR)
        begin = sum(len(text) + len(SEPARATOR) for text in parts[:part])
        end = begin + len(parts[part])
        within = [index for index, (start, _) in enumerate(self.spans) if begin <= start < end]
        if len(within) < 2:
            return self.chunk_at(begin)
        texts = [self.selection.text[slice(*self.spans[index])] for index in within]
        return self.selection.ids[within[closest(self.answer.text, texts)[0]]]

    def chunk_at(self, offset: int) -> str | None:
        """Return the id of the chunk that holds an offset in the context; None for a summary."""
        ids = self.selection.ids
        return next((chunk for chunk, (_, end) in zip(ids, self.spans, strict=False) if offset < end), None)


def ask(
    question: str,
    index: ChunkIndex | str | Path | Sequence[Text] | Retriever,
    *,
    budget_tokens: int = 1024,
    selector: Spelling | Selector = "corag",
    reader: Spelling | Reader = "minilm-reader",
    embedder: Spelling | Embedder | None = None,
    num_candidates: int = 20,
    retrieval: Retrieval | None = None,
    where: Where | None = None,
    tokens: Spelling | TokenCounter = AUTO,
    budget_for: BudgetFor = "prompt",
    on_token: Callable[[str], None] | None = None,
) -> Reply:
    """Answer a question from an index, from texts, or from what a retriever finds.

    Args:
        question: The question.
        index: An index, or its path; texts as `corag.select` takes them, which are compared with the question; or a
            retriever: a callable that takes the question and `num_candidates` and returns texts, best first, whose
            ranking and similarities are kept.
        budget_tokens: Maximum tokens of the prompt; for a reader without a prompt, such as `minilm-reader`, of the
            context.
        selector: Name, or object with a token counter of its own.
        reader: Name or object.
        embedder: Embedder of the question: name or object; by default the index's, and `minilm` for texts. Texts of a
            retriever are embedded only if the selector compares similarities and the retriever gives none.
        num_candidates: How many chunks or texts the selector gets.
        retrieval: How the index ranks them; see `ChunkIndex.retrieve`. By default `hybrid`.
        where: Filter of chunks by metadata; see `ChunkIndex.retrieve`.
        tokens: Token counter: name or object; by default the tokenizer of the reader's model.
        budget_for: What the budget covers: the whole `prompt`, or the `context` alone.
        on_token: Called with each piece of the answer as it is written, if the reader is a `StreamingReader`.

    Raises:
        InputError: An argument is of a wrong type or out of range; the retriever is asynchronous (use `aask`); the
            prompt does not fit the budget, or prompt and answer do not fit the model's window.
        IndexMismatchError: There is no complete index, or the embedder is not the index's.
    """
    check_query(question)
    Budget(budget_tokens, None, budget_for)
    check_count("num_candidates", num_candidates, "10 to 50 are usual", most=MOST_CANDIDATES)
    if where is not None and not isinstance(index, ChunkIndex | str | Path):
        raise InputError("where filters the chunks of an index; filter texts, or in the retriever, before")
    embedding = None if embedder is None else make_embedder(embedder)
    opened = ChunkIndex.open(index, embedding) if isinstance(index, str | Path) else index
    source = opened if isinstance(opened, ChunkIndex) or callable(opened) else as_candidates(opened)
    if embedding is None:
        named: Spelling = DEFAULT_EMBEDDER
        if isinstance(source, ChunkIndex):
            named = trusted(EMBEDDERS, source.embedder_name, f"the index at {source.uri}")
        embedding = CachedEmbedder(named) if callable(source) else make_embedder(named)
    elif isinstance(source, ChunkIndex) and embedding.name != source.embedder_name:
        raise IndexMismatchError(
            f"the index at {source.uri} was made by embedder {source.embedder_name!r}, not by {embedding.name!r}; "
            "use that embedder"
        )
    reading, counter = reader_and_tokens(reader, tokens)
    selecting = SELECTORS.offer(selector, {**tokens_setting(counter), **tree_setting(selector, source)})
    budget = Budget(budget_tokens, reading, budget_for)
    budget.for_context(question)  # refuses what leaves no room for a context, before any work
    seconds = dict.fromkeys(("embed", "retrieve", "select", "read"), 0.0)
    known = source.stored_states() if isinstance(source, ChunkIndex) else nullcontext()
    with recording() as models, known:
        if isinstance(source, ChunkIndex):
            with _timed(seconds, "embed"):
                vector = vectors_by(embedding, [question])[0]
            with _timed(seconds, "retrieve"):
                how = retrieval or "hybrid"
                candidates = source.retrieve(question, vector, num_candidates, how, where)
        elif callable(source):
            with _timed(seconds, "retrieve"):
                candidates = candidates_of(source(question, num_candidates), num_candidates)
            if _lacks_similarities(selecting, candidates):
                with _timed(seconds, "embed"):
                    candidates = with_cosines(question, candidates, embedding)
        else:
            with _timed(seconds, "embed"):
                candidates = with_cosines(question, source, embedding)[:num_candidates]
        with _timed(seconds, "select"):
            selection = budget.select(selecting, question, candidates)
        with _timed(seconds, "read"):
            answer = read(reading, question, selection.text, on_token)
    budget.warn_if_exceeded(answer.prompt_tokens, counter)
    counts = budget.counts(question, selection.text, getattr(selecting, "tokens", counter))
    parts = {"selector": spelling(selecting), "reader": spelling(reading), "embedder": spelling(embedding)}
    return Reply(question, answer, selection, seconds, counts, parts, models())


async def aask(question: str, index: ChunkIndex | str | Path | Sequence[Text] | Retriever, **settings: Any) -> Reply:
    """Answer a question in a thread, without blocking the event loop; see `ask`. The retriever may be asynchronous."""
    if not callable(index) or not is_async(index):
        return await asyncio.to_thread(ask, question, index, **settings)
    num_candidates = settings.get("num_candidates", 20)
    check_query(question)
    begun_s = time.perf_counter()
    retrieved = await index(question, num_candidates)  # type: ignore[misc]
    retrieve_s = time.perf_counter() - begun_s
    reply = await asyncio.to_thread(ask, question, lambda *_: retrieved, **settings)
    return replace(reply, seconds={**reply.seconds, "retrieve": retrieve_s})


def read(reader: Reader, question: str, context: str, on_token: Callable[[str], None] | None = None) -> Answer:
    """Return a reader's answer; `on_token` is called with each piece as it is written, if the reader streams."""
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
    num_parts = context.count(SEPARATOR) + 1
    for part in [*answer.citations, *([] if answer.chunk is None else [answer.chunk])]:
        check_count(
            f"a citation or chunk of reader {reader.name!r}", part, "0 is the first", least=0, most=num_parts - 1
        )
    for start, end in (*answer.spans, *answer.sentence_spans):
        if not 0 <= start <= end <= len(context):
            raise InputError(
                f"reader {reader.name!r} returned the span {(start, end)} of a context of {len(context)} characters; "
                "spans are offsets in the context"
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
