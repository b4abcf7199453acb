"""What every selector does alike: check the input, keep the budget, build the selection.

A selector only chooses (`_choose`); that the chosen text really costs no more than the budget under the
answering model's tokenizer is seen to here, in one place, for all of them.
"""

from __future__ import annotations

import asyncio
import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from corag.errors import BudgetError, InputError
from corag.rerankers.scorers import CachedScorer
from corag.rerankers.window import DEFAULT_POLICY, WindowedScorer, WindowPolicy
from corag.selectors.limits import Limits, combined
from corag.text.documents import SEPARATOR
from corag.text.tokens import token_counter
from corag.types import Candidate, Chunk, FloatArray, Order, Reranker, Selection, TokenCounter, Trace


@dataclass(frozen=True, slots=True)
class Choice:
    """What a selector decided.

    Attributes:
        order: Candidate indices in prompt order; empty when nothing fits. With a text of its own: the candidates
            that it was made from.
        value: The reranker's value of that order.
        trace: What a person may want to know about how it came about.
        text: What goes into the prompt, when it is not the joined chunks but, say, a summary of them. Its tokens,
            counted as a whole, must be at most the budget.
    """

    order: Order
    value: float
    trace: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None


class Problem:
    """One query with its candidates, cleaned of duplicates, and what they cost.

    Args:
        query: The question.
        candidates: Best first.
        tokens: Counts as the answering model does.

    Attributes:
        query: The question.
        chunks: Distinct chunks, best first.
        similarities: Cosine of each chunk to the query, `[n]`.
        costs: Tokens of each chunk plus one separator, `[n]`. A combination of k chunks stands with k - 1
            separators, so costs are compared with the budget plus one separator.
        separator_tokens: Tokens of one separator.
        num_duplicates: Candidates left out because their id or text stood before.
    """

    def __init__(self, query: str, candidates: Sequence[Candidate], tokens: TokenCounter) -> None:
        kept = _distinct(candidates)
        self.query = query
        self.chunks: list[Chunk] = [candidate.chunk for candidate in kept]
        self.similarities: FloatArray = np.array([candidate.similarity for candidate in kept], dtype=np.float64)
        self.num_duplicates = len(candidates) - len(kept)
        counts = tokens.count([SEPARATOR, *(chunk.text for chunk in self.chunks)])
        self.separator_tokens = int(counts[0])
        self.costs: NDArray[np.int64] = counts[1:] + self.separator_tokens
        self._scorers: dict[tuple[int, WindowPolicy], tuple[Reranker, CachedScorer]] = {}

    def scorer(self, reranker: Reranker, window: WindowPolicy = DEFAULT_POLICY) -> CachedScorer:
        """Return the reranker bound to this query, with a memory that lasts as long as the problem.

        Args:
            reranker: The reranker.
            window: What becomes of orders that are longer than its window, where it declares one.
        """
        key = (id(reranker), window)
        # The reranker is kept beside its scorer so that its id stays its own.
        if key not in self._scorers:
            bound = reranker.scorer(self.query, self.chunks)
            if getattr(bound, "window", None) is not None:
                bound = cast(WindowedScorer, bound).under(window)
            scorer = CachedScorer(bound, reranker.name, [chunk.id for chunk in self.chunks])
            self._scorers[key] = (reranker, scorer)
        return self._scorers[key][1]

    def limits(self, scorer: CachedScorer, budget_tokens: int) -> Limits:
        """Return what may be chosen within a budget for the sum of `costs`, and, where it forbids more, a window."""
        window = scorer.window
        if window is None or scorer.policy != "forbid":
            return Limits(self.costs, budget_tokens)
        return combined(self.costs, budget_tokens, window.lengths, window.tokens + window.separator_tokens)

    def window_trace(self, scorer: CachedScorer, limits: Limits) -> dict[str, Any]:
        """Return what to note about the reranker's window: nothing where it declares none.

        `binds` says whether it kept any order from being chosen, cut or split one; `overlong` counts the longer orders
        that were asked for.
        """
        window = scorer.window
        if window is None:
            return {}
        overlong = len(scorer.overlong_orders)
        noted = {
            "policy": scorer.policy,
            "tokens": window.tokens,
            "binds": limits.window_binds or overlong > 0,
            "overlong": overlong,
        }
        if not limits.window_binds or len(limits.fitting):
            return {"window": noted}
        shortest = int(window.lengths.min()) - window.separator_tokens
        return {
            "window": noted,
            "reason": (
                f"none of the {len(self.chunks)} candidates fits both the budget and the reranker's window, which "
                f"beside this question has room for {window.tokens} tokens (the shortest candidate has {shortest}); "
                "cut smaller chunks, or use window='windows', which looks at a longer text in parts"
            ),
        }

    def text(self, order: Order) -> str:
        """Return the joined text of an order, as it goes into the prompt."""
        return SEPARATOR.join(self.chunks[index].text for index in order)

    def with_dearer_separators(self, extra_tokens: int) -> Problem:
        """Return the same problem, remembered values included, with separators that cost more.

        Single chunks fit a budget as before; every combination costs more for each place where it is joined.
        """
        dearer = copy.copy(self)
        dearer.separator_tokens = self.separator_tokens + extra_tokens
        dearer.costs = self.costs + extra_tokens
        return dearer


class BudgetedSelector(ABC):
    """A selector whose selections never cost more than their budget.

    Args:
        tokens: The answering model's token counter; MiniLM's by default.
    """

    name: ClassVar[str]
    queries_at_once: ClassVar[int] = 64
    """Queries that `select_many` holds in memory and advances together."""

    def __init__(self, *, tokens: TokenCounter | None = None) -> None:
        self.tokens: TokenCounter = tokens or token_counter()

    @abstractmethod
    def _choose(self, problem: Problem, budget_tokens: int) -> Choice:
        """Return an order whose summed `problem.costs` are at most `budget_tokens`, or a choice with its own text."""

    def select(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> Selection:
        """Choose chunks for one query.

        Args:
            query: The question.
            candidates: Best first.
            budget_tokens: The most tokens that the selection's text may cost.

        Returns:
            A selection; an empty one carries its `reason` in the trace.

        Raises:
            InputError: The question is empty, the budget below 1, or two texts share an id.
            ScoringError: The reranker returned something that cannot be ranked.
        """
        check_query(query)
        check_budget(budget_tokens)
        return self.select_from(Problem(query, candidates, self.tokens), int(budget_tokens))

    def select_many(
        self, queries: Sequence[str], candidates: Sequence[Sequence[Candidate]], budget_tokens: int
    ) -> list[Selection]:
        """Choose chunks for each query; equal to calling `select` for one after the other.

        Raises:
            InputError: Not as many lists of candidates as queries; else see `select`.
        """
        if len(queries) != len(candidates):
            raise InputError(
                f"{len(queries)} queries come with {len(candidates)} lists of candidates; give one for each"
            )
        for query in queries:
            check_query(query)
        check_budget(budget_tokens)
        selections: list[Selection] = []
        for start in range(0, len(queries), self.queries_at_once):
            rows = slice(start, start + self.queries_at_once)
            problems = [Problem(*given, self.tokens) for given in zip(queries[rows], candidates[rows], strict=True)]
            choices = self._choose_many(problems, int(budget_tokens))
            selections += [
                self.select_from(problem, int(budget_tokens), choice)
                for problem, choice in zip(problems, choices, strict=True)
            ]
        return selections

    def _choose_many(self, problems: Sequence[Problem], budget_tokens: int) -> Sequence[Choice | None]:
        """Return a choice for each problem, or None to have it made by `_choose` alone.

        A choice's summed costs are at most `budget_tokens` plus one separator of its problem.
        """
        return [None] * len(problems)

    async def aselect(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> Selection:
        """Choose chunks for one query without blocking the event loop; see `select`."""
        return await asyncio.to_thread(self.select, query, candidates, budget_tokens)

    def select_from(self, problem: Problem, budget_tokens: int, choice: Choice | None = None) -> Selection:
        """Choose from a problem that is already set up, sharing its remembered values; see `select`.

        Args:
            problem: The problem.
            budget_tokens: The most tokens that the selection's text may cost.
            choice: What was chosen already; checked like any other, and chosen anew where it does not fit.
        """
        started = time.perf_counter()
        offered = problem
        while True:
            inner_budget = budget_tokens + offered.separator_tokens
            if choice is None:
                choice = self._choose(offered, inner_budget) if offered.chunks else Choice((), 0.0)
            chosen = list(choice.order)
            text = offered.text(choice.order) if choice.text is None else choice.text
            cost = int(self.tokens.count([text])[0]) if chosen else 0
            summed_costs = int(offered.costs[chosen].sum())
            if cost <= budget_tokens or len(chosen) < 2 or summed_costs > inner_budget or choice.text is not None:
                break
            # Under some tokenizers a joined text costs more than its parts. What joining was seen to cost is
            # charged to the separators: this combination no longer fits, what fits alone still does, so the
            # rounds end, and every value found so far is remembered.
            excess = cost - (summed_costs - offered.separator_tokens)
            offered, choice = offered.with_dearer_separators(-(-excess // (len(chosen) - 1))), None
        trace: dict[str, Any] = {
            **choice.trace,
            "chunk_tokens": [int(problem.costs[index]) - problem.separator_tokens for index in chosen],
            "chunk_similarities": problem.similarities[chosen].tolist(),
        }
        if not choice.order:
            trace.setdefault("reason", self._reason(problem, budget_tokens))
        if problem.num_duplicates:
            trace["duplicates_dropped"] = problem.num_duplicates
        if not self.tokens.exact:
            trace["tokens_estimated"] = self.tokens.name
        trace["select_s"] = time.perf_counter() - started
        if cost > budget_tokens or len(set(choice.order)) != len(choice.order):
            raise BudgetError(
                f"selector {self.name!r} chose {chosen} at {cost} tokens for a budget of {budget_tokens}; "
                "please report this"
            )
        return Selection(
            chunks=tuple(problem.chunks[index] for index in choice.order),
            text=text,
            cost_tokens=cost,
            budget_tokens=budget_tokens,
            value=choice.value,
            method=self.name,
            trace=Trace.of(trace),
        )

    def _reason(self, problem: Problem, budget_tokens: int) -> str:
        if not problem.chunks:
            return "there are no candidates"
        cheapest = int(problem.costs.min()) - problem.separator_tokens
        if cheapest > budget_tokens:
            return (
                f"every one of the {len(problem.chunks)} candidates costs more than the budget of "
                f"{budget_tokens} tokens (the cheapest costs {cheapest}); raise the budget or cut smaller "
                "chunks"
            )
        return f"{self.name} took none of the {len(problem.chunks)} candidates"


def fill(ranking: Sequence[int], costs: NDArray[np.int64], budget: int, limit: int | None = None) -> Order:
    """Take candidates in the order of `ranking`, passing over those that no longer fit.

    Args:
        ranking: Candidate indices, best first.
        costs: Cost of each candidate, `[n]`.
        budget: The most that the chosen ones may cost together.
        limit: The most candidates to take.
    """
    chosen: list[int] = []
    for index in ranking:
        if limit is not None and len(chosen) >= limit:
            break
        if costs[index] <= budget:
            chosen.append(int(index))
            budget -= int(costs[index])
    return tuple(chosen)


def check_query(query: str) -> None:
    """Raise `InputError` for a question without any text."""
    if not query.strip():
        raise InputError(f"the question is empty ({query!r}); give a question with at least one word")


def check_budget(budget_tokens: int) -> None:
    """Raise `InputError` for a budget that is not a whole number of at least 1."""
    whole = isinstance(budget_tokens, int | np.integer) and not isinstance(budget_tokens, bool)
    if not whole or budget_tokens < 1:
        raise InputError(
            f"budget_tokens must be a whole number of at least 1, got {budget_tokens!r}; 256 to 4096 are usual"
        )


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Leave out repeated ids and repeated texts, which add cost and nothing else; keep the best-ranked.

    Raises:
        InputError: Two different texts under one id, or a similarity that is not a number.
    """
    by_id: dict[str, str] = {}
    texts: set[str] = set()
    kept: list[Candidate] = []
    for rank, candidate in enumerate(candidates):
        chunk = candidate.chunk
        if not np.isfinite(candidate.similarity):
            raise InputError(
                f"candidate {chunk.id!r} at rank {rank} has similarity {candidate.similarity}; similarities "
                "have to be finite numbers: check the embedder"
            )
        if by_id.setdefault(chunk.id, chunk.text) != chunk.text:
            raise InputError(
                f"two candidates with different texts share the id {chunk.id!r}; ids have to be unique: "
                "name chunks docid#start-end"
            )
        if chunk.text not in texts:
            texts.add(chunk.text)
            kept.append(candidate)
    return kept
