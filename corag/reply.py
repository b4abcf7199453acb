"""One question, from an index to a selection, and to an answer if a reader is given: each step one object, one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from common.checks import MOST_CANDIDATES, check_count, check_query
from corag.budget import AUTO, Budget, BudgetFor, Counts, reader_and_tokens, tokens_setting
from corag.candidates import Retriever, Text, as_candidates, candidates_of
from corag.errors import InputError
from corag.index import ChunkIndex, Retrieval, Where
from corag.models.embedders import CachedEmbedder, vectors_by
from corag.registry import EMBEDDERS, SELECTORS
from corag.selecting import kept_embedder, kept_selector, with_missing_cosines
from corag.selectors.raptor.tree import tree_setting
from corag.text.documents import SEPARATOR, citation, content
from corag.text.tokens import token_counts
from corag.text.units import Span, UnitChunk, disjoint, source_of
from corag.text.visible import to_json
from corag.types import Answer, Candidate, Embedder, Reader, Selection, Selector, StreamingReader, TokenCounter
from corag.untrusted import check_untrusted


class Source(NamedTuple):
    """A source in the context: a chosen chunk, or all that was chosen of one document's sentences.

    Attributes:
        marker: The numbers of its parts of the context, which empty lines divide: `[1]`, or `[2-3]`.
        citation: Where it comes from; of several places in a document, that of the first chosen.
        chunks: Which of the chosen chunks it is.
        span: Where it is in the selection's text.
        is_cited: Whether the answer cites it, or was taken from it.
    """

    marker: str
    citation: str
    chunks: tuple[int, ...]
    span: Span
    is_cited: bool = False


class LeftOut(NamedTuple):
    """A candidate of which nothing was chosen, its tokens, and why."""

    candidate: Candidate
    tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What was chosen for a question, and what a reader answered from it.

    Attributes:
        question: The question.
        selection: The context.
        left_out: The candidates of which nothing was chosen, best first.
        answer: The reader's answer; None without a reader.
        counts: What the prompt cost, and how it was counted.
    """

    question: str
    selection: Selection
    left_out: Sequence[LeftOut]
    answer: Answer | None
    counts: Counts

    @property
    def sources(self) -> list[Source]:
        """What the context consists of, in its order; none for a summary."""
        text, spans, answer = self.selection.text, self.selection.spans, self.answer
        of_source: dict[Any, list[int]] = {}  # `assemble` joins what is from one document under one title
        for index, chunk in enumerate(disjoint(self.selection.chunks) if spans else ()):
            key = (chunk.document, chunk.source.text[: chunk.body]) if isinstance(chunk, UnitChunk) else index
            of_source.setdefault(key, []).append(index)
        cited = set() if answer is None else {*answer.citations, answer.chunk}
        sources = []
        for chunks in of_source.values():
            start, end = min(spans[index][0] for index in chunks), max(spans[index][1] for index in chunks)
            first, last = (text.count(SEPARATOR, 0, at) for at in (start, end))
            marker = f"[{first + 1}]" if first == last else f"[{first + 1}-{last + 1}]"
            place = citation(source_of(self.selection.chunks[chunks[0]]))
            is_cited = not cited.isdisjoint(range(first, last + 1))
            sources.append(Source(marker, place, tuple(chunks), (start, end), is_cited))
        return sources

    def to_dict(self) -> dict[str, Any]:
        """Return what `corag ask --json` prints."""
        answer, selection, sources = self.answer, self.selection, self.sources
        marker_of = {index: source.marker for source in sources for index in source.chunks}
        return {
            "question": self.question,
            "answer": None if answer is None else answer.text,
            "confidence": None if answer is None else answer.confidence,
            "cut": answer is not None and answer.cut,
            "citations": {one.marker: selection.ids[one.chunks[0]] for one in sources if one.is_cited},
            "unknown_citations": [] if answer is None else [f"[{part + 1}]" for part in answer.unknown_citations],
            "usage": {name: getattr(answer, name, None) for name in ("prompt_tokens", "answer_tokens")},
            "text": selection.text,
            "sources": [source._asdict() for source in sources],
            "chunks": [row | {"marker": marker_of.get(index)} for index, row in enumerate(chunk_rows(selection))],
            "left_out": [
                {"id": one.candidate.chunk.id, "citation": citation(one.candidate.chunk), "tokens": one.tokens}
                | {"similarity": one.candidate.similarity, "reason": one.reason}
                for one in self.left_out
            ],
            **selection.summary(),
            **self.counts._asdict(),
        }


def chunk_rows(selection: Selection) -> list[dict[str, Any]]:
    """Return what is said of each chosen chunk.

    That is `id`, `text`, `citation`, its `span` in the context, `metadata`, and of the chunk alone `tokens`,
    `similarity` and `value`, as far as they are known.
    """
    trace, nothing = selection.trace, (None,) * len(selection)
    figures = (selection.spans, trace.chunk_tokens, trace.chunk_similarities, trace.chunk_values)
    known = zip(selection.chunks, *(of_chunks or nothing for of_chunks in figures), strict=True)
    return [
        {"id": one.id, "text": one.text, "citation": citation(one), "span": span and list(span), "tokens": tokens}
        | {"similarity": similarity, "value": value, "metadata": dict(one.metadata)}
        for one, span, tokens, similarity, value in known
    ]


def ask(
    question: str,
    index: ChunkIndex | str | Path | Sequence[Text] | Retriever,
    *,
    budget_tokens: int = 1024,
    method: str | Selector = "corag",
    reader: str | Reader | None = None,
    embedder: str | Embedder | None = None,
    num_candidates: int = 20,
    retrieval: Retrieval = "hybrid",
    where: Where | None = None,
    tokenizer: str | TokenCounter = AUTO,
    budget_for: BudgetFor = "prompt",
    on_token: Callable[[str], None] | None = None,
    **settings: Any,
) -> Reply:
    """Select for a question from an index, from texts, or from what a retriever finds, and answer it if told how.

    Args:
        question: The question.
        index: An index, or its path; texts as `corag.select` takes them; or a retriever: a callable that takes the
            question and `num_candidates` and returns texts, best first, whose ranking and similarities are kept.
        budget_tokens: Maximum tokens of the prompt; without a reader, or for one without a prompt, of the context.
        method: The selector: name, or object with a token counter of its own.
        reader: Name or object, such as `ollama(model=llama3.1:8b)`, which is asked to cite (`prompt=cited`) unless its
            name has another prompt; None to select alone.
        embedder: Embedder of the question: name or object; by default the index's.
        num_candidates: How many chunks an index or a retriever returns.
        retrieval: How the index ranks them; see `ChunkIndex.retrieve`.
        where: Filter of chunks by metadata; see `ChunkIndex.retrieve`.
        tokenizer: Token counter: name or object; by default the tokenizer of the reader's model, MiniLM's without one.
        budget_for: What the budget covers: the whole `prompt`, or the `context` alone.
        on_token: Called with each piece of the answer as it is written, if the reader is a `StreamingReader`.
        settings: Settings of a selector given by name, such as `unit`, as for `corag.select`.

    Raises:
        InputError: An argument is of a wrong type or out of range; the retriever is asynchronous (use `aask`); the
            prompt does not fit the budget, or prompt and answer do not fit the model's window.
        IndexMismatchError: There is no complete index, or the embedder is not the index's.
    """
    check_query(question)
    check_count("num_candidates", num_candidates, "typical: 10-50", most=MOST_CANDIDATES)
    if (where is not None or embedder is not None) and not isinstance(index, ChunkIndex | str | Path):
        raise InputError("where and embedder are for an index; filter texts before, and give the selector an embedder")
    reading, counter = reader_and_tokens(reader, tokenizer, prompt="cited")
    budget = Budget(budget_tokens, reading, budget_for)
    budget.for_context(question)  # refuses what leaves no room for a context, before any work
    source = ChunkIndex.open(index) if isinstance(index, str | Path) else index
    tree = tree_setting(method, source)
    build = SELECTORS.make if tree else kept_selector  # a tree is read anew, as it changes with its index
    selecting = build(method, defaults={**tokens_setting(counter), **tree}, **settings)
    candidates: Sequence[Candidate]
    if isinstance(source, ChunkIndex):
        embedding = embedder_of(source) if embedder is None else EMBEDDERS.make(embedder)
        source.manifest.require_embedder(embedding.name, embedding.dimension, source.uri)
        vector = vectors_by(embedding, [question], query=True)[0]
        candidates = source.retrieve(question, vector, num_candidates, retrieval, where)
    elif callable(source):
        candidates = candidates_of(source(question, num_candidates), num_candidates)
    else:
        candidates = with_missing_cosines(question, as_candidates(source), budget_tokens, selecting)
    selection = budget.select(selecting, question, candidates)
    if not candidates and (where is not None or callable(source)):
        reason = "the retriever found nothing" if where is None else f"no chunk passed the filter {to_json(where)}"
        selection = replace(selection, trace=replace(selection.trace, reason=reason))
    answer = None if reading is None else read(reading, question, selection.text, on_token)
    counts = budget.counts(question, selection.text, getattr(selecting, "tokenizer", counter))
    return Reply(question, selection, _left_out(candidates, selection, counter), answer, counts)


async def aask(question: str, index: ChunkIndex | str | Path | Sequence[Text] | Retriever, **settings: Any) -> Reply:
    """Answer a question in a thread, without blocking the event loop; see `ask`. The retriever may be asynchronous."""
    if not callable(index):
        return await asyncio.to_thread(ask, question, index, **settings)
    returned = await asyncio.to_thread(index, question, settings.get("num_candidates", 20))
    found = await returned if isinstance(returned, Awaitable) else returned
    return await asyncio.to_thread(ask, question, lambda *_: found, **settings)


def embedder_of(index: ChunkIndex) -> CachedEmbedder:
    """Return what an index's questions are embedded by if no embedder is given: its own."""
    return kept_embedder(check_untrusted(EMBEDDERS, index.manifest.embedder_name, f"the index at {index.uri}"))


def read(reader: Reader, question: str, context: str, on_token: Callable[[str], None] | None = None) -> Answer:
    """Return a reader's answer; `on_token` is called with each piece as it is written, if the reader streams."""
    if on_token is None or not isinstance(reader, StreamingReader):
        answer = reader.answer(question, context)
    else:
        with closing(reader.stream(question, context)) as pieces:
            while True:
                try:
                    piece = next(pieces)
                except StopIteration as end:
                    answer = end.value
                    break
                on_token(piece)
    if not isinstance(answer, Answer):
        raise InputError(f"reader {reader.name!r} returned {answer!r:.80}; it must return an Answer")
    return answer


def _left_out(candidates: Sequence[Candidate], selection: Selection, tokens: TokenCounter) -> list[LeftOut]:
    """Return the candidates of which nothing was chosen, with their tokens, and why."""
    chosen = {source_of(chunk).id: content(source_of(chunk)) for chunk in selection.chunks}
    others = [candidate for candidate in candidates if candidate.chunk.id not in chosen]
    promised = selection.trace.details.get("share_kept", 1.0) < 1
    rest, seen, left = selection.budget_tokens - selection.cost_tokens, set(chosen.values()), []
    # The tokens of the smallest unit of each, which is written last.
    offered = sorted(selection.trace.offered, key=lambda one: -one.tokens)
    fewest = {source_of(one.chunk).id: one.tokens for one in offered}
    for candidate, count in zip(others, token_counts(tokens, [one.chunk.text for one in others]).tolist(), strict=True):
        needed = fewest.get(candidate.chunk.id, count)
        reason = "is not needed to keep the promise" if promised else "adds less than its tokens are worth"
        if content(candidate.chunk) in seen:
            reason = "has the text of another one"
        elif needed > selection.budget_tokens:
            reason = "is larger than the budget"
        elif needed > rest and not promised:
            reason = "does not fit beside what was chosen"
        seen.add(content(candidate.chunk))
        left.append(LeftOut(candidate, count, reason))
    return left
