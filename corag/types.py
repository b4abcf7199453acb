"""The values that pass between retriever, search, reader and user, and the protocols of the parts.

A part is a protocol, so any object that behaves like a `Reranker` is one; there is nothing to inherit from. What a
part may offer beyond that has a protocol of its own, such as `BatchReader`, and is found with `isinstance`. This module
knows no model, no device and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError

if TYPE_CHECKING:
    from search import Policy, SearchResult

Order = tuple[int, ...]
"""A combination of candidates: their indices (0 is the best-ranked) in prompt order."""

FloatArray = NDArray[np.float64]

ScoreOrders = Callable[[Sequence[Order]], FloatArray]
"""What the search calls: orders in, one value each out, higher is better."""

SimilarityKind = Literal["cosine", "score", "rank"]


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
    """

    chunk: Chunk
    similarity: float | None = None
    kind: SimilarityKind = "cosine"
    embedder: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in get_args(SimilarityKind):
            raise InputError(
                f"Candidate.kind is {self.kind!r}; it must be one of {', '.join(get_args(SimilarityKind))}"
            )


@dataclass(frozen=True, slots=True)
class Trace:
    """How a selection came about; None where a figure does not apply to the selector.

    Attributes:
        reason: Why nothing was selected.
        chunk_tokens: Tokens of each selected chunk alone.
        chunk_similarities: Similarity of each selected chunk to the query as it was given, or None.
        chunk_values: The reranker's value of each selected chunk alone.
        reranker: Name of the reranker.
        policy: Search policy; see `search.SearchConfig`, as for the next three.
        iterations: Rounds of scoring.
        exploration: c of the utility.
        cost_weight: lambda of the utility.
        prefilter: Share of the orders that the reranker was asked about.
        surrogate: Name of what ranked the orders for `prefilter`.
        orders_ranked: Orders that the surrogate ranked.
        orders_scored: Orders that the search sent to the reranker.
        scorer_calls: Batches in which it sent them.
        orders_computed: Distinct orders that the reranker computed.
        truncated: Distinct orders that were cut to the reranker's window.
        window: How the reranker's window limited the search: `policy`, `tokens`, `binds` (it kept an order from being
            selected, split it or cut it) and `overlong` (longer orders that the search asked for).
        agent: Name of the shipped agent, where it decided.
        no_agent: Why the shipped agent could not be used.
        probabilities: The agent's probability of each reranker.
        passed_over: Reranker that the agent preferred -> why it could not be used.
        result: The search's own result with its tree.
        duplicates_dropped: Candidates left out because their id or text stood before.
        tokens_estimated: Name of the token counter, where it estimates.
        select_s: Wall-clock seconds of the selection.
        details: What else the selector notes, such as `cutoff` or `pieces`.
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
    prefilter: float | None = None
    surrogate: str | None = None
    orders_ranked: int | None = None
    orders_scored: int = 0
    scorer_calls: int = 0
    orders_computed: int = 0
    truncated: int = 0
    window: Mapping[str, Any] | None = None
    agent: str | None = None
    no_agent: str | None = None
    probabilities: Mapping[str, float] | None = None
    passed_over: Mapping[str, str] | None = None
    result: SearchResult | None = None
    duplicates_dropped: int = 0
    tokens_estimated: str | None = None
    select_s: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, noted: Mapping[str, Any]) -> Self:
        """Return a record of what a selector noted by name; names without a field go to `details`."""
        own = {one.name for one in fields(cls)}
        details = {name: value for name, value in noted.items() if name not in own}
        return cls(**{name: value for name, value in noted.items() if name in own}, details=details)

    def to_dict(self) -> dict[str, Any]:
        """Return what applies, `details` beside the rest and `result` left out; JSON can hold it."""
        noted = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("details", "result")}
        return {name: value for name, value in noted.items() if value is not None} | dict(self.details)


@dataclass(frozen=True, slots=True)
class Selection:
    """The chunks chosen for one query, in prompt order.

    Attributes:
        chunks: The chosen chunks in the order in which they stand in the prompt; of a summarising selector, those
            that its text was made from.
        text: Exactly what goes into the prompt: their joined text, or what a summarising selector made of them.
        cost_tokens: Tokens of `text` under the answering model's tokenizer; never above `budget_tokens`.
        budget_tokens: The most tokens that `text` may cost.
        value: What the reranker gives this ordered combination; 0.0 for an empty selection.
        method: Name of the selector.
        trace: How it came about: `reason` when empty, orders scored, settings, timings.
    """

    chunks: tuple[Chunk, ...]
    text: str
    cost_tokens: int
    budget_tokens: int
    value: float
    method: str
    trace: Trace = field(default_factory=Trace)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the chosen chunks in prompt order."""
        return tuple(chunk.id for chunk in self.chunks)

    @property
    def budget_share(self) -> float:
        """Share of the budget that is used, in [0, 1]."""
        return self.cost_tokens / self.budget_tokens

    def __len__(self) -> int:
        return len(self.chunks)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reader says.

    Attributes:
        text: The answer; empty when the reader found none.
        confidence: In [0, 1], or None when the reader has no such figure.
        spans: Character spans `(start, end)` of the context that the answer was taken from, in order.
        chunk: Which part of the context the (first) span stands in, or a generated answer came from, counted from 0,
            where empty lines divide the parts as they divide the chunks of a selection; None where a reader cannot say.
    """

    text: str
    confidence: float | None = None
    spans: tuple[tuple[int, int], ...] = ()
    chunk: int | None = None


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Texts to be made shorter.

    Attributes:
        texts: The texts, in order, none empty.
        sources: Ids of the chunks that they come from.
        max_tokens: The most tokens that the summary may have, as the summarizer counts.
        query: The question or statement that it should keep what matters for; empty for none.
    """

    texts: tuple[str, ...]
    sources: tuple[str, ...]
    max_tokens: int
    query: str = ""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InputError(f"SummaryRequest.max_tokens must be at least 1, got {self.max_tokens}")


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors.

    Attributes:
        name: Its name.
        dimension: Numbers of a vector.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see Attributes

    @property
    def dimension(self) -> int: ...  # noqa: D102 - see Attributes

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per text, `[len(texts), dimension]`."""
        ...


@runtime_checkable
class TokenCounter(Protocol):
    """Counts the tokens of texts as the answering model would.

    Attributes:
        name: For people.
        exact: False for an estimate, which is then reported as one.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see Attributes

    @property
    def exact(self) -> bool: ...  # noqa: D102 - see Attributes

    def count(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each text, without special tokens."""
        ...


class Scorer(Protocol):
    """A `ScoreOrders` that a reranker bound to one query and its chunks.

    Attributes:
        order_matters: False when every permutation of an order has the same value; searches may then
            score each set once.
        num_truncated: Distinct orders so far whose text was cut to fit the reranker's window.
    """

    @property
    def order_matters(self) -> bool: ...  # noqa: D102 - see Attributes

    @property
    def num_truncated(self) -> int: ...  # noqa: D102 - see Attributes

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return the value of each order, `[len(orders)]`, higher is better, on the scale [0, 1]."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Values texts, and ordered combinations of chunks, for a query, on the scale [0, 1].

    A reranker may also be an `IdentifiedReranker`, a `LimitedReranker` or a `PolicyReranker`. Its scorer may be a
    `corag.rerankers.WindowedScorer`, which declares how much of a combination the reranker sees, or a
    `corag.rerankers.JointScorer`, whose orders share batches with those of other questions.

    Attributes:
        name: For people and error messages.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see Attributes

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text for the query, `[len(texts)]`, independent of its neighbours."""
        ...

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> Scorer:
        """Return the scoring function that the search calls with orders over `chunks`.

        `corag.rerankers.JoinedTextScorer(self, query, chunks)` is right for every reranker. A reranker that can cache
        work per chunk returns a faster one.
        """
        ...


@runtime_checkable
class IdentifiedReranker(Reranker, Protocol):
    """A reranker whose values can be kept on disk.

    Attributes:
        identity: What values depend on besides query and texts: name, hash of the weights, precision, window. Empty for
            none.
    """

    @property
    def identity(self) -> str: ...  # noqa: D102 - see Attributes


@runtime_checkable
class LimitedReranker(Reranker, Protocol):
    """A reranker that says how much it sees at once.

    Attributes:
        max_tokens: The most tokens of a text, in its own tokens; None for no limit.
    """

    @property
    def max_tokens(self) -> int | None: ...  # noqa: D102 - see Attributes


@runtime_checkable
class PolicyReranker(Reranker, Protocol):
    """A reranker that one search policy suits best.

    Attributes:
        search_policy: The default policy of selector `corag` with this reranker; None for the selector's own.
    """

    @property
    def search_policy(self) -> Policy | None: ...  # noqa: D102 - see Attributes


@runtime_checkable
class Selector(Protocol):
    """Chooses chunks for a prompt under a token budget.

    `corag.selectors.BudgetedSelector` is a base class that provides all methods and keeps the budget.

    Attributes:
        name: For people and tables.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see Attributes

    def select(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> Selection:
        """Return a selection whose text costs at most `budget_tokens`."""
        ...

    def select_many(
        self, queries: Sequence[str], candidates: Sequence[Sequence[Candidate]], budget_tokens: int
    ) -> list[Selection]:
        """Return what `select` returns for each query and its candidates."""
        ...

    async def aselect(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> Selection:
        """Return what `select` returns, without blocking the event loop."""
        ...


@runtime_checkable
class Reader(Protocol):
    """Answers a question from a context.

    Attributes:
        name: For people.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see Attributes

    def answer(self, query: str, context: str) -> Answer:
        """Return the answer that `context` supports."""
        ...


@runtime_checkable
class BatchReader(Reader, Protocol):
    """A reader that reads many contexts in shared batches."""

    def answer_many(self, queries: Sequence[str], contexts: Sequence[str]) -> list[Answer]:
        """Return the answer to each question from the context at its place."""
        ...


@runtime_checkable
class Summarizer(Protocol):
    """Makes texts shorter; see `corag.summarizers.runs.summarize_all` for many requests, a memory and failures.

    Attributes:
        name: For people.
        identity: What a summary depends on besides the request: model, prompt, settings.
        tokens: Counts tokens.
        window_tokens: The most tokens of texts that one request may hold, or None for no limit.
        max_concurrent: Requests that may run at the same time.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see Attributes

    @property
    def identity(self) -> str: ...  # noqa: D102 - see Attributes

    @property
    def tokens(self) -> TokenCounter: ...  # noqa: D102 - see Attributes

    @property
    def window_tokens(self) -> int | None: ...  # noqa: D102 - see Attributes

    @property
    def max_concurrent(self) -> int: ...  # noqa: D102 - see Attributes

    def summarize(self, request: SummaryRequest) -> str:
        """Return the summary; empty when the texts hold nothing that matters.

        Raises:
            SummarizerError: There is no summary, and why.
        """
        ...
