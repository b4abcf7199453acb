"""The base classes of all selectors: they check the input, keep the budget and build the selection.

A selector only chooses (`_choose`). That the chosen text costs no more than the budget under the answering model's
tokenizer is checked here, in one place, for all of them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple
from unicodedata import category

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.checks import check_budget, check_choice, check_count, check_query
from corag.ambient import checking
from corag.candidates import Text, as_candidates
from corag.errors import BudgetError, InputError
from corag.models.embedders import CachedEmbedder
from corag.optional import warn_once
from corag.registry import RERANKERS, Part
from corag.registry import tokens as make_tokens
from corag.rerankers.scorers import CachedScorer
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy
from corag.selectors.problem import DEFAULT_MAX_UNITS, SelectionProblem, cut_problem
from corag.text.tokens import token_counts
from corag.text.units import Span, ranges_of, unit_size
from corag.types import (
    Candidate,
    Chunk,
    Embedder,
    FloatArray,
    Offered,
    Order,
    Reranker,
    Selection,
    SimilarityKind,
    TokenCounter,
    Trace,
)

PromptOrder = Literal["value", "ends", "document"]

DEFAULT_RERANKER = "minilm-evidence"
"""Trained on passages and on sentences."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a selector decided.

    Attributes:
        order: Candidate indices in prompt order; empty if nothing fits. With `text`: the candidates that it was made
            from.
        value: The reranker's value of that order.
        trace: What a user may want to know about the decision.
        text: The prompt's text, if it is not the joined chunks but, for example, a summary of them. Its tokens,
            counted as a whole, must be at most the budget.
    """

    order: Order
    value: float = 0.0
    trace: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None


class Assembled(NamedTuple):
    """A choice, its text, the span of each of its chunks in that, and the tokens of the text."""

    choice: Choice
    text: str
    spans: list[Span]
    cost: int


def checked(default: Any, check: Callable[..., None], **rule: Any) -> Any:
    """Return a setting that a function of `common.checks` checks by a rule; None passes where it is the default."""
    return field(default=default, metadata={"check": partial(check, **rule)})


@dataclass(kw_only=True, eq=False)
class BudgetedSelector(Part):
    """A selector whose selections never cost more than their budget.

    Settings are the fields of the class, given by keyword.

    Args:
        tokenizer: Counts tokens as the answering model does: name or object; MiniLM's by default.
        unit: What is chosen: candidates as they are (`passage`), their sentences (`sentence`), or windows of n of
            these (`window(n)`). Sentences are below the title of their document, in its order.
        max_units: The most sentences or windows to choose from.
        order: How the chosen chunks follow each other in the prompt, which changes neither choice nor value: `value`,
            as the selector chose them; `ends`, the best first and last, where models read most closely (Liu et al.,
            "Lost in the middle", 2024); `document`, chunks of one document in its order, documents in that of their
            first chunk. A text that the selector writes itself, such as a summary, has no order to change.
    """

    tokenizer: TokenCounter = field(default_factory=make_tokens)
    unit: str = "passage"
    max_units: int = checked(DEFAULT_MAX_UNITS, check_count, hint="typical: 30-100")
    order: PromptOrder = checked("value", check_choice, names=PromptOrder)

    name: ClassVar[str]
    queries_at_once: ClassVar[int] = 64
    """Queries that `select_many` has in memory and advances together."""
    max_respends: ClassVar[int] = 3
    """How often it chooses again with the tokens that chosen chunks save by what they share."""

    @property
    def compares(self) -> bool:
        """Whether it compares the similarities of candidates, rather than values of a reranker."""
        return not hasattr(self, "reranker")

    def __post_init__(self) -> None:
        self.tokenizer = make_tokens(self.tokenizer or "minilm")
        self._unit_size = unit_size(self.unit)
        for setting in fields(self):
            value = getattr(self, setting.name)
            if "check" in setting.metadata and not (value is None and setting.default is None):
                setting.metadata["check"](setting.name, value)

    def _choose(self, problem: SelectionProblem) -> Choice:
        """Return an order whose summed `problem.costs` are at most `problem.capacity`, or a choice with its own text.

        The problem has at least one candidate. A selector defines this, or `_choose_many`.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither _choose nor _choose_many")

    def _choose_many(self, problems: Sequence[SelectionProblem]) -> Sequence[Choice]:
        """Return a choice for each problem; defined by selectors that advance many problems together."""
        return [self._choose(problem) for problem in problems]

    def select(self, query: str, candidates: Iterable[Text], budget_tokens: int) -> Selection:
        """Choose chunks for one query.

        Args:
            query: The question.
            candidates: Best first: candidates, or texts as `corag.select` accepts them.
            budget_tokens: The most tokens that the selection's text may cost.

        Returns:
            A selection; an empty one gives its `reason` in the trace.

        Raises:
            InputError: The question is empty, the budget below 1, two texts share an id, or the candidates lack the
                similarities that the selector compares.
            ScoringError: The reranker returned something that cannot be ranked.
        """
        check_query(query)
        check_budget(budget_tokens)
        return self.select_from(self.problem(query, as_candidates(candidates), budget_tokens))

    def select_many(
        self, queries: Sequence[str], candidates: Sequence[Iterable[Text]], budget_tokens: int
    ) -> list[Selection]:
        """Choose chunks for each query; equal to calling `select` for one after the other.

        Raises:
            InputError: Not as many lists of candidates as queries; else see `select`.
        """
        if isinstance(queries, str) or len(queries) != len(candidates):
            raise InputError(f"expected a list of queries and as many lists of candidates, got {queries!r:.80}")
        return list(self.select_each(zip(queries, candidates, strict=True), budget_tokens))

    def select_each(self, pairs: Iterable[tuple[str, Iterable[Text]]], budget_tokens: int) -> Iterator[Selection]:
        """Choose chunks for as many questions as come, in memory that does not grow with their number.

        Of the pairs of question and candidates `queries_at_once` are read ahead; those read together with a wrong one
        have no selections. Each selection equals that of `select`.
        """
        check_budget(budget_tokens)
        read = iter(pairs)
        while block := list(islice(read, self.queries_at_once)):
            problems: deque[SelectionProblem] = deque()
            for query, candidates in block:
                check_query(query)
                problems.append(self.problem(query, as_candidates(candidates), budget_tokens))
            yield from self.select_from_many(problems)

    def select_from_many(self, problems: deque[SelectionProblem]) -> Iterator[Selection]:
        """Choose from problems that are set up already, together; it takes each out of the queue."""
        choices = iter(self._choose_many([problem for problem in problems if problem.chunks]))
        while problems:  # frees the cached values of each question
            problem = problems.popleft()
            yield self.select_from(problem, next(choices) if problem.chunks else None)

    def problem(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> SelectionProblem:
        """Return what `select` chooses from: the candidates, or their units."""
        # Separators, punctuation and controls; signs such as `+` may be what is asked about.
        if all(category(character)[0] in "ZPC" for character in query):
            warn_once(f"the question {query!r:.40} has no word, so it does not tell which texts to choose")
        passages = SelectionProblem(query, candidates, self.tokenizer, budget_tokens)
        return self.prepared(passages.prefiltered() if self._reads(passages) else passages)

    def _reads(self, passages: SelectionProblem) -> bool:
        """Return whether a model reads all candidates, so that of many only the most promising are considered."""
        return True

    def prepared(self, passages: SelectionProblem) -> SelectionProblem:
        """Return what is chosen from, given the candidates as they are; `problem` for a caller that has these."""
        return cut_problem(passages, self._unit_size, self.max_units)

    async def aselect(self, query: str, candidates: Iterable[Text], budget_tokens: int) -> Selection:
        """Choose chunks for one query without blocking the event loop; see `select`. Cancelled, it stops its work."""
        cancelled = threading.Event()

        def check() -> None:
            if cancelled.is_set():
                raise asyncio.CancelledError

        def work() -> Selection:
            with checking(check):
                return self.select(query, candidates, budget_tokens)

        try:
            return await asyncio.to_thread(work)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def select_from(self, problem: SelectionProblem, choice: Choice | None = None) -> Selection:
        """Choose from a problem that is set up already, sharing its cached values; see `select`.

        A given `choice` is checked like any other, and replaced if it does not fit.
        """
        started = time.perf_counter()
        if len(problem.chunks) >= 3 and 3 * np.quantile(problem.costs, 0.25) > problem.capacity:
            warn_once(
                "fewer than three candidates fit together in the budget, so there is little to choose; raise the "
                "budget, or cut smaller chunks (corag index --max_tokens)"
            )
        if choice is None:
            choice = self._choose_many([problem])[0] if problem.chunks else Choice(())
        chosen = self._respend_savings(problem, self._fit_to_budget(problem, choice))
        chosen = self._trimmed(problem, chosen)
        choice = chosen.choice
        order, trace = choice.order, dict(choice.trace)
        if chosen.spans:
            # As they follow each other in the text; those of a document are in its order.
            rows = sorted(range(len(order)), key=chosen.spans.__getitem__)
            order = tuple(order[row] for row in rows)
            if "chunk_values" in trace:
                trace["chunk_values"] = [trace["chunk_values"][row] for row in rows]
        if chosen.cost > problem.budget_tokens or len(set(order)) != len(order):
            raise BudgetError(
                f"selector {self.name!r} chose {list(order)} at {chosen.cost} tokens for a budget of "
                f"{problem.budget_tokens}; please report this"
            )
        costs = (problem.costs - problem.separator_tokens).tolist()
        trace["offered"] = list(map(Offered, problem.chunks, costs, problem.given_similarities))
        taken = [trace["offered"][index] for index in order]
        trace["chunk_tokens"] = [one.tokens for one in taken]
        trace["chunk_similarities"] = [one.similarity for one in taken]
        if not order:
            trace.setdefault("reason", self._reason(problem))
        if duplicates := problem.passages.num_duplicates:
            trace["duplicates_dropped"] = duplicates
        if not self.tokenizer.exact:
            trace["tokens_estimated"] = self.tokenizer.name
        trace["select_s"] = time.perf_counter() - started
        return Selection(
            chunks=tuple(one.chunk for one in taken),
            text=chosen.text,
            cost_tokens=chosen.cost,
            budget_tokens=problem.budget_tokens,
            value=choice.value,
            method=self.name,
            trace=Trace.of(trace),
            spans=tuple(sorted(chosen.spans)),
        )

    def _fit_to_budget(self, problem: SelectionProblem, choice: Choice) -> Assembled:
        """Return a choice whose text costs no more than the budget.

        Under some tokenizers a joined text costs more than its parts. The excess is charged to the separators: this
        combination no longer fits, what fits alone still does, so the loop ends; values are cached.
        """
        while True:
            chosen = self._assembled(problem, choice)
            joints, summed = len(choice.order) - 1, problem.summed_tokens(choice.order)
            broken = summed + problem.separator_tokens > problem.capacity
            if chosen.cost <= problem.budget_tokens or joints < 1 or broken or choice.text is not None:
                return chosen
            extra = problem.extra_separator_tokens - (summed - chosen.cost) // joints
            problem = replace(problem, extra_separator_tokens=extra)
            choice = self._choose_many([problem])[0]

    def _respend_savings(self, problem: SelectionProblem, chosen: Assembled) -> Assembled:
        """Return a choice that also spends the tokens that chosen chunks save by what they share."""
        for _ in range(self.max_respends if problem.whole is not None or problem.overlapping else 0):
            order = chosen.choice.order
            left = problem.capacity - int(problem.costs[list(order)].sum())
            budget_binds = bool((np.delete(problem.costs, list(order)) > left).any())
            if chosen.choice.text is not None or not order or not budget_binds:
                break
            saved = problem.summed_tokens(order) - chosen.cost
            # The next one may save as much as each of these; if it does not, it is paid.
            more = saved + -(-saved // (len(order) - 1)) if saved > 0 else problem.most_shared_tokens
            for slack in (more, saved):
                if slack > problem.slack:
                    offered = replace(problem, slack=slack)
                    other = self._assembled(offered, self._choose_many([offered])[0])
                    if other.cost <= problem.budget_tokens and other.choice.order != order:
                        problem, chosen = offered, other
                        break
            else:
                break
        return chosen

    def _trimmed(self, problem: SelectionProblem, chosen: Assembled) -> Assembled:
        """Return a choice that spends less where the selector can say what that costs; here the choice as it is."""
        return chosen

    def _assembled(self, problem: SelectionProblem, choice: Choice) -> Assembled:
        if choice.text is not None or not choice.order:
            text, spans = choice.text or "", list[Span]()
        else:
            chunks = [problem.chunks[index] for index in choice.order]
            rows = list(range(len(chunks))) if self.order == "value" else arranged(chunks, self.order)
            text, in_rows = problem.assembled(tuple(choice.order[row] for row in rows))
            spans = [in_rows[place] for place in np.argsort(rows)]
        return Assembled(choice, text, spans, int(token_counts(self.tokenizer, [text])[0]) if text else 0)

    def _reason(self, problem: SelectionProblem) -> str:
        if not problem.chunks:
            return "there are no candidates" + (" with a text" if problem.passages.num_duplicates else "")
        cheapest = int(problem.costs.min()) - problem.separator_tokens
        if cheapest > problem.budget_tokens:
            return (
                f"all {len(problem.chunks)} candidates cost more than the budget of {problem.budget_tokens} tokens "
                f"(the cheapest costs {cheapest}); raise it or cut smaller chunks"
            )
        return f"{self.name} took none of the {len(problem.chunks)} candidates"


@dataclass(kw_only=True, eq=False)
class EmbeddingSelector(BudgetedSelector):
    """A selector that embeds candidates.

    Args:
        embedder: Name or object; MiniLM by default. If the candidates' similarities cannot be compared, it computes
            cosines.
    """

    embedder: str | Embedder | None = None

    compared: ClassVar[Sequence[SimilarityKind]] = ("cosine",)
    """Kinds of similarities that it compares as they are given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.cached_embedder = CachedEmbedder(self.embedder)

    def _vectors(self, problem: SelectionProblem) -> FloatArray:
        """Return the candidates' unit vectors, `[n, d]`."""
        return self.cached_embedder.vectors([chunk.text for chunk in problem.chunks])

    def _comparable(self, problem: SelectionProblem) -> SelectionProblem:
        """Return a problem with similarities that can be compared."""
        if problem.kind in self.compared and problem.whole is None:
            return problem
        question = self.cached_embedder.vectors([problem.query], query=True)[0]
        pairs = zip(problem.candidates, (self._vectors(problem) @ question).tolist(), strict=True)
        return replace(problem, candidates=[replace(given, similarity=one, kind="cosine") for given, one in pairs])


class ComparingSelector(EmbeddingSelector):
    """A selector that compares similarities, and embeds candidates only if these cannot be compared."""

    def _reads(self, passages: SelectionProblem) -> bool:
        return passages.kind not in self.compared


@dataclass(kw_only=True, eq=False)
class RerankingSelector(BudgetedSelector):
    """A selector with one reranker.

    Args:
        reranker: Name or object; None for `DEFAULT_RERANKER`.
        window: How orders longer than the reranker's window are valued; see `corag.rerankers.window`.
    """

    reranker: str | Reranker | None = None
    window: WindowPolicy = checked(DEFAULT_POLICY, check_choice, names=WindowPolicy)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reranker = self._reranker = RERANKERS.make(self.reranker or DEFAULT_RERANKER, defaults=self._offered())

    def _offered(self) -> Mapping[str, Any]:
        """Return the settings that a reranker given by name gets, as far as it takes them."""
        return {}

    def prepared(self, passages: SelectionProblem) -> SelectionProblem:
        """Return what is chosen from: of units, those of the passages that the reranker values most."""
        if self._unit_size is None or not passages.chunks:
            return super().prepared(passages)
        values = self._scorer(passages)([(row,) for row in range(len(passages.chunks))])
        return cut_problem(passages, self._unit_size, self.max_units, values)

    def _scorer(self, problem: SelectionProblem) -> CachedScorer:
        """Return what values orders of a problem."""
        return problem.scorer(self._reranker, self.window)

    def _scored(self, problem: SelectionProblem, order: Order, value: float, **others: Any) -> Choice:
        """Return a choice with what the trace of all selectors with a reranker has."""
        scorer = self._scorer(problem)
        alone = scorer([(index,) for index in order]).tolist()
        of_scorer = {"reranker": scorer.name, "truncated": scorer.num_truncated, "chunk_values": alone}
        return Choice(order, value, {**of_scorer, **others})


def arranged(chunks: Sequence[Chunk], order: PromptOrder) -> list[int]:
    """Return the positions of chosen chunks, given best first, in the order in which the prompt shows them."""
    rows = list(range(len(chunks)))
    if order == "ends":
        return [*rows[::2], *rows[1::2][::-1]]
    if order == "document":
        ranges = [(ranges_of(chunk) or [(chunk.id, 0, 0)])[0] for chunk in chunks]
        first = {document: row for row, (document, *_) in reversed([*enumerate(ranges)])}
        return sorted(rows, key=lambda row: (first[ranges[row][0]], ranges[row][1]))
    return rows


def finite_numbers(name: str, values: ArrayLike) -> FloatArray:
    """Return a number for each document, `[N]`; `InputError` for another shape or a number that is not finite."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise InputError(f"{name}: expected a finite number for each document, got {numbers!r:.100}")
    return numbers


def fill(ranking: Sequence[int], costs: NDArray[np.int64], budget: int, limit: int | None = None) -> Order:
    """Take at most `limit` candidates in the order of `ranking`, skipping those that no longer fit.

    `costs` are those of all candidates, `[n]`; those of the chosen ones add up to at most `budget`.
    """
    chosen: list[int] = []
    for index in ranking:
        if limit is not None and len(chosen) >= limit:
            break
        if costs[index] <= budget:
            chosen.append(int(index))
            budget -= int(costs[index])
    return tuple(chosen)


def keep_best(problem: SelectionProblem, count: int) -> Order:
    """Return those of the `count` most relevant candidates that fit, best first; if none, the best one that does.

    One worse chunk serves a reader better than none.
    """
    ranking = problem.by_relevance
    return fill(ranking[:count], problem.costs, problem.capacity) or fill(ranking, problem.costs, problem.capacity, 1)


def unscored(
    problem: SelectionProblem, order: Order, trace: Mapping[str, Any] | None = None, text: str | None = None
) -> Choice:
    """Return a choice that no reranker valued: its value is the mean similarity of its chunks, or 0 without any."""
    known = bool(order) and problem.kind != "rank"
    value = float(problem.relevance[list(order)].mean()) if known else 0.0
    return Choice(order, value, {"orders_scored": 0, "scorer_calls": 0, **(trace or {})}, text)
