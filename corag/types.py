"""The values that pass between retriever, search, reader and user, and the protocols of the parts."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from common.checks import check_choice, check_count, check_range, check_text, well_formed
from corag.errors import InputError

if TYPE_CHECKING:
    from search import SearchResult

Order = tuple[int, ...]
"""A combination of candidates: their indices (0 is the best-ranked) in prompt order."""

FloatArray = NDArray[np.float64]

SimilarityKind = Literal["cosine", "score", "rank"]
COSINE_ROUNDING = 1e-3
"""How far beyond [-1, 1] a cosine in half precision may be."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A contiguous block of a document.

    Attributes:
        id: Unique name; `docid#start-end` (character offsets, end exclusive) when cut from a longer document.
        text: What reranker and reader see: title, newline, body, where there is a title.
        metadata: Anything else: title, document id, offsets. Never interpreted by a selector.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_text("Chunk.id", self.id)
        check_text("Chunk.text", self.text)
        if not isinstance(self.metadata, Mapping):
            raise InputError(f"Chunk.metadata is {self.metadata!r:.80}; give a mapping, such as {{}}")
        if not self.id:
            raise InputError("Chunk.id is empty; every chunk needs a unique, non-empty id")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk that the retriever offers for a query; candidates are given best first.

    Attributes:
        chunk: The chunk.
        similarity: Similarity to the query, higher is better; None if the retriever tells only an order.
        kind: What `similarity` is: a `cosine` in [-1, 1]; a `score` on another scale, such as BM25; or a `rank`, which
            is not compared: the order in which candidates are given counts.
        embedder: Name of the embedder that computed a cosine. With None it is taken to be the one that a selector's
            agent was trained with, because cosines do not tell who computed them.
        rank: Position in the retriever's ranking, from 0, if that is not the order of the similarities, as after hybrid
            retrieval. Selectors that take the best first, such as `top-k`, use it; those that compare similarities,
            such as `mmr`, do not.
    """

    chunk: Chunk
    similarity: float | None = None
    kind: SimilarityKind = "cosine"
    embedder: str | None = field(default=None, compare=False)
    rank: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.chunk, Chunk):
            raise InputError(f"Candidate.chunk is {self.chunk!r:.80}, not a Chunk; corag.select takes plain texts, too")
        check_choice("Candidate.kind", self.kind, SimilarityKind)
        if self.similarity is not None:
            most = 1 + COSINE_ROUNDING if self.kind == "cosine" else 1e30  # which every float holds
            hint = "None if it is not known; of another scale than cosines, give its kind: score"
            name = f"the similarity of {self.chunk.id!r:.80}"
            check_range(name, self.similarity, -most, most, hint)
        if self.rank is not None:
            check_count("Candidate.rank", self.rank, "it is a position in a ranking, from 0", least=0)


class Offered(NamedTuple):
    """A text that could be chosen: a chunk or a unit of one, its tokens alone, and its similarity as it was given."""

    chunk: Chunk
    tokens: int
    similarity: float | None


@dataclass(frozen=True, slots=True)
class Trace:
    """How a selection came about; None where a figure does not apply to the selector.

    `policy`, `iterations` and `exploration` are those of `search.SearchConfig`; `cost_weight` is the price of 256
    tokens, with a preset that of the whole budget.

    Attributes:
        reason: Why nothing was selected.
        chunk_tokens: Tokens of each selected chunk alone.
        chunk_similarities: Similarity of each selected chunk to the query as it was given, or None.
        chunk_values: The reranker's value of each selected chunk alone.
        reranker: Name of the reranker.
        orders_scored: Orders that the search sent to the reranker.
        scorer_calls: Batches in which it sent them.
        truncated: Distinct orders that were cut to the reranker's window.
        result: The search's own result with its tree.
        offered: What could be chosen; the orders of `result` are of its indices.
        duplicates_dropped: Candidates left out because their id or text occurred before.
        tokens_estimated: Name of the token counter, where it estimated tokens of the text.
        select_s: Wall-clock seconds of the selection.
        details: What else the selector notes, such as `cutoff` or `pieces`. If an agent named it: its `configuration`,
            the agent's `probabilities` of all configurations, whether it `fell_back`, and `because`, which says this in
            a line.
    """

    reason: str | None = None
    chunk_tokens: Sequence[int] = ()
    chunk_similarities: Sequence[float | None] = ()
    chunk_values: Sequence[float] | None = None
    reranker: str | None = None
    policy: str | None = None
    iterations: int | None = None
    exploration: float | None = None
    cost_weight: float | None = None
    orders_scored: int = 0
    scorer_calls: int = 0
    truncated: int = 0
    result: SearchResult | None = None
    offered: Sequence[Offered] = field(default=(), repr=False)
    duplicates_dropped: int = 0
    tokens_estimated: str | None = None
    select_s: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, notes: Mapping[str, Any]) -> Self:
        """Return a trace from a selector's notes by name; names without a field go to `details`."""
        names = cls.__dataclass_fields__
        details = {name: value for name, value in notes.items() if name not in names}
        return cls(**{name: value for name, value in notes.items() if name in names}, details=details)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that apply as JSON values, without `result` and `offered`, and those of `details`."""
        names = [name for name in self.__dataclass_fields__ if name not in ("details", "result", "offered")]
        notes = {name: getattr(self, name) for name in names}
        return {name: value for name, value in notes.items() if value is not None} | dict(self.details)


@dataclass(frozen=True, slots=True)
class Selection:
    """The chunks chosen for one query, in prompt order.

    Attributes:
        chunks: The chosen chunks in prompt order; of a summarising selector, the sources of its text.
        text: Exactly what goes into the prompt: their joined text, or what a summarising selector made of them.
        cost_tokens: Tokens of `text` under the answering model's tokenizer; never above `budget_tokens`.
        budget_tokens: The most tokens that `text` may cost.
        value: What the reranker gives this ordered combination; 0.0 for an empty selection.
        method: Name of the selector.
        trace: How it came about: `reason` when empty, orders scored, settings, timings.
        spans: Character span of each chunk in `text`; empty for a summarising selector.
    """

    chunks: tuple[Chunk, ...]
    text: str
    cost_tokens: int
    budget_tokens: int
    value: float
    method: str
    trace: Trace = field(default_factory=Trace)
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the chosen chunks in prompt order."""
        return tuple(chunk.id for chunk in self.chunks)

    def __len__(self) -> int:
        return len(self.chunks)

    def summary(self) -> dict[str, Any]:
        """Return what it cost and how it came about as JSON values, without chunks and text."""
        figures = {name: getattr(self, name) for name in ("cost_tokens", "budget_tokens", "value", "method")}
        return {**figures, "trace": self.trace.to_dict()}


@dataclass(frozen=True, slots=True)
class Answer:
    """A reader's answer. A reader leaves the default for what it does not determine.

    Attributes:
        text: The answer; empty if the reader found none. Lone surrogates become U+FFFD.
        confidence: That it is right, in [0, 1].
        spans: Character spans `(start, end)` of the context that the answer was taken from, in order.
        chunk: Part of the context, counted from 0 and separated by empty lines, that the first span or a generated
            answer came from.
        citations: The parts that a generated answer cites, counted as in `chunk`, in the order of the answer.
        unknown_citations: Those that it cites and that the context does not have, counted likewise.
        cut: Whether the answer ends because it reached the reader's `max_answer_tokens`.
        prompt_tokens: Tokens of the whole prompt, as a language model counted them.
        answer_tokens: Tokens of its reply.
    """

    text: str
    confidence: float | None = None
    spans: tuple[tuple[int, int], ...] = ()
    chunk: int | None = None
    citations: tuple[int, ...] = ()
    unknown_citations: tuple[int, ...] = ()
    cut: bool = False
    prompt_tokens: int | None = field(default=None, compare=False)
    answer_tokens: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        # Models cut characters in half; neither tokenizers nor files take the pieces.
        if isinstance(self.text, str):
            object.__setattr__(self, "text", well_formed(self.text))
        if isinstance(self.confidence, int | float | np.number):
            # A sum of probabilities may be a little more than 1.
            check_range("Answer.confidence", round(float(self.confidence), 3), 0, 1, "None if it is not known")


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Texts to be made shorter.

    Attributes:
        texts: The texts, in order, at least one and none empty.
        max_tokens: The most tokens that the summary may have, as the summarizer counts.
        query: The question or statement that it should keep what matters for; empty for none.
    """

    texts: tuple[str, ...]
    max_tokens: int
    query: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.texts, tuple) or not self.texts:
            raise InputError(f"SummaryRequest.texts is {self.texts!r:.80}; give a tuple of at least one text")
        check_count("SummaryRequest.max_tokens", self.max_tokens, "typical: 100")


class Named(Protocol):
    """What every part has."""

    @property
    def name(self) -> str:
        """Its name, for people, tables and errors."""


@runtime_checkable
class Embedder(Named, Protocol):
    """Turns texts into vectors.

    One that embeds questions otherwise than texts has a method `embed_queries`, too, which is called like `embed`.
    """

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per text, `[len(texts), dimension]`."""


@runtime_checkable
class TokenCounter(Named, Protocol):
    """Counts the tokens of texts as the answering model would."""

    @property
    def exact(self) -> bool:
        """False for an estimate, which is then reported as one."""

    def count(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each text, without special tokens, `[len(texts)]`."""


class Scorer(Protocol):
    """What the search calls, bound by a reranker to one query and its chunks: orders in, one value each out."""

    @property
    def order_matters(self) -> bool:
        """False if every permutation of an order has the same value; searches may then score each set once."""

    @property
    def num_truncated(self) -> int:
        """Distinct orders so far whose text was cut to fit the reranker's window."""

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return the value of each order, `[len(orders)]`, higher is better, on the scale [0, 1]."""


@runtime_checkable
class Reranker(Named, Protocol):
    """Values texts, and ordered combinations of chunks, for a query, on the scale [0, 1].

    It may also have `max_tokens`, the most tokens of a text that it sees, in its own tokens. See also
    `corag.rerankers.WindowedReranker`.
    """

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text for the query, `[len(texts)]`, whatever its neighbours."""

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> Scorer:
        """Return the scoring function that the search calls with orders over `chunks`.

        `corag.rerankers.JoinedTextScorer(self, query, chunks)` is right for all; one that caches per chunk is faster.
        """


@runtime_checkable
class Selector(Named, Protocol):
    """Chooses chunks for a prompt under a token budget.

    `corag.selectors.BudgetedSelector` is a base class that provides all methods and keeps the budget.
    """

    def select(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> Selection:
        """Return a selection whose text costs at most `budget_tokens`."""

    def select_many(
        self, queries: Sequence[str], candidates: Sequence[Sequence[Candidate]], budget_tokens: int
    ) -> list[Selection]:
        """Return what `select` returns for each query and its candidates."""

    async def aselect(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> Selection:
        """Return what `select` returns, without blocking the event loop."""


@runtime_checkable
class Reader(Named, Protocol):
    """Answers a question from a context."""

    def answer(self, query: str, context: str) -> Answer:
        """Return the answer that `context` supports."""


@runtime_checkable
class BatchReader(Reader, Protocol):
    """A reader that reads many contexts in shared batches."""

    def answer_many(self, queries: Sequence[str], contexts: Sequence[str]) -> list[Answer]:
        """Return the answer to each question from the context at its place."""


@runtime_checkable
class StreamingReader(Reader, Protocol):
    """A reader whose answer can be heard while it is written."""

    def stream(self, query: str, context: str) -> Generator[str, None, Answer]:
        """Yield the pieces of an answer as they are written, and return the answer; closing it stops the reader."""


@runtime_checkable
class PromptedReader(Reader, Protocol):
    """A reader that sends a prompt to a language model, in whose window prompt and answer have to fit."""

    @property
    def tokens(self) -> TokenCounter:
        """Counts as the model does; where its tokenizer is not at hand, a flagged estimate that is never too low."""

    @property
    def window_tokens(self) -> int | None:
        """The most tokens of prompt and answer together; None where that is not known."""

    @property
    def max_answer_tokens(self) -> int:
        """The most tokens of an answer."""

    def prompt_tokens(self, query: str, context: str = "") -> int:
        """Return the tokens of the whole prompt, chat template included; with no context, of what surrounds one."""


@runtime_checkable
class Summarizer(Named, Protocol):
    """Makes texts shorter; see `corag.summarizers.runs.summarize_all` for many requests, a memory and failures."""

    @property
    def identity(self) -> str:
        """What a summary depends on besides the request: model, prompt, settings."""

    @property
    def tokens(self) -> TokenCounter:
        """Counts tokens."""

    @property
    def window_tokens(self) -> int | None:
        """The most tokens of texts that one request may hold, or None for no limit."""

    @property
    def max_concurrent(self) -> int:
        """Requests that may run at the same time."""

    def summarize(self, request: SummaryRequest) -> str:
        """Return the summary, empty if the texts hold nothing that matters, or raise `SummarizerError`."""
