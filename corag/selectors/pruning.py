"""Selectors of sentences, by others' rules or by what their loss costs: `prune` and two published methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from corag.checks import check_count, check_range
from corag.errors import InputError
from corag.naming import Spelling
from corag.registry import tokens as make_tokens
from corag.rerankers.scorers import Scaling, gives_probabilities
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy
from corag.selectors.base import BudgetedSelector, Choice, EmbeddingSelector, checked, fill, unscored
from corag.selectors.order import PromptOrder
from corag.selectors.price import COST_WEIGHT, REFERENCE_TOKENS
from corag.selectors.problem import DEFAULT_MAX_UNITS, SelectionProblem, selection_problem
from corag.selectors.reranking import RerankingSelector
from corag.selectors.wrapping import built
from corag.text.units import Unit, UnitChunk, source_of
from corag.types import Candidate, Chunk, FloatArray, Order, Reranker, ScoreOrders, TokenCounter

DROPPED_AT_ONCE = 0.25
"""Share of a long combination that one round drops, so that n sentences take about 4 n values, not n * n / 2."""
ONE_BY_ONE = 8
"""A combination of at most so many loses one at a time."""
MOST_UNITS = 1000
"""Sentences of all candidates that are set up; those of the chosen passages are then considered."""


def units_of(problem: SelectionProblem, passages: Sequence[int]) -> Order:
    """Return the units of some of `problem.passages`: passage by passage as given, those of each in its order.

    A unit that several passages share, because they overlap or repeat it, is set up once; it is a unit of each.
    """
    given = [problem.passages.chunks[index] for index in passages]
    ranks = {chunk.id: rank for rank, chunk in reversed([*enumerate(given)])}
    found = []
    for index, unit in enumerate(problem.chunks):
        rank, document, start = ranks.get(source_of(unit).id), unit.id, 0
        if isinstance(unit, UnitChunk):
            document, start = unit.document, unit.span[0] + unit.shift
            if rank is None:
                rank = next((rank for rank, chunk in enumerate(given) if _contains(chunk, unit)), None)
        if rank is not None:
            found.append((rank, document, start, index))
    return tuple(index for *_, index in sorted(found))


def _contains(chunk: Chunk, unit: UnitChunk) -> bool:
    """Return whether a passage with the title of a unit's source has its words."""
    source, (start, end) = unit.source.text, unit.span
    return chunk.text.startswith(source[: unit.body]) and source[start:end] in chunk.text[unit.body :]


def eliminate(
    order: Order, score_orders: ScoreOrders, fits: Callable[[Order], bool], tolerance: float = 0.0
) -> tuple[Order, float]:
    """Drop from an order, round by round, what its value misses least, and return the best order met, and its value.

    Backward elimination: each round values every order with one member less and drops the member whose loss leaves the
    highest value, of long orders a quarter of the members at once.

    Args:
        order: What may be kept, in the order in which it is valued.
        score_orders: Values orders, higher is better.
        fits: Tells whether an order may be chosen. An order with fewer members than a fitting one is assumed to fit.
        tolerance: By how much the value may lie below the best one for fewer members.

    Returns:
        Of the fitting orders whose value is at least the best one less `tolerance`, the one with the fewest members;
        an empty order of value 0 if none fits.
    """
    seen: list[tuple[Order, float]] = []
    kept, value = order, float(score_orders([order])[0]) if order else 0.0
    while kept:
        if seen or fits(kept):
            seen.append((kept, value))
        if len(kept) == 1:
            break
        values = score_orders([(*kept[:position], *kept[position + 1 :]) for position in range(len(kept))])
        # Ties go to the last: sources are best first.
        ranking = sorted(range(len(kept)), key=lambda position: (-values[position], -position))
        count = int(len(kept) * DROPPED_AT_ONCE) if len(kept) > ONE_BY_ONE else 1
        dropped = set(ranking[:count])
        kept = tuple(index for position, index in enumerate(kept) if position not in dropped)
        value = float(values[ranking[0]]) if count == 1 else float(score_orders([kept])[0])
    best = max((value for _, value in seen), default=0.0)
    enough = [(order, value) for order, value in seen if value >= best - tolerance]
    return next(((order, value) for order, value in reversed(enough) if fits(order)), ((), 0.0))


class Prune(RerankingSelector):
    """Chooses passages as another selector does, and drops the sentences without which their value is higher.

    Value here is the reranker's value less the price of the tokens. Dropping begins with all sentences of the chosen
    passages; see `eliminate`. The rest keeps the order of its sources and of the sentences in them. If no passage fits
    the budget, the best-ranked one is pruned.

    Args:
        selector: Chooses the passages: name or object; an object must be a `BudgetedSelector`. A text that it wrote
            itself, such as a summary, stays as it is.
        reranker: Values sets of sentences; see `RerankingSelector`.
        cost_weight: lambda: what 256 tokens cost in units of value; see `corag.selectors.price`.
        window: See `RerankingSelector`.
        tolerance: How far the value may fall below the best for fewer sentences, in [0, 1].
        max_units: The most sentences to choose from.
        order: See `BudgetedSelector`.
        tokenizer: Counts tokens as the answering model does: name or object; passed on to a selector given by name.
        settings: Settings of a selector given by name.
    """

    name = "prune"
    max_respends = 0  # the tokens of whole texts are counted, so shared titles leave nothing to spend

    def __init__(
        self,
        *,
        selector: Spelling | BudgetedSelector = "top-k",
        reranker: Spelling | Reranker | None = None,
        cost_weight: float = COST_WEIGHT,
        window: WindowPolicy = DEFAULT_POLICY,
        tolerance: float = 0.0,
        max_units: int = DEFAULT_MAX_UNITS,
        order: PromptOrder = "value",
        tokenizer: Spelling | TokenCounter | None = None,
        **settings: Any,
    ) -> None:
        counter = make_tokens(tokenizer or "minilm")
        super().__init__(
            unit="sentence", max_units=max_units, order=order, tokenizer=counter, reranker=reranker, window=window
        )
        self.inner = built(selector, self.tokenizer, **settings)
        if Unit.parse(self.inner.unit).size is not None:
            raise InputError(f"selector: prune cuts passages into sentences, but {str(self.inner)!r} chooses units")
        check_range("tolerance", tolerance, 0, 1, "0 to 0.1 are usual")
        check_range("cost_weight", cost_weight, 0, 100, "0.1 is usual")
        self.cost_weight, self.tolerance = cost_weight, tolerance

    def problem(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> SelectionProblem:
        """Return what `select` chooses from: the sentences of all candidates."""
        return selection_problem(query, candidates, self.tokenizer, budget_tokens, self._unit, MOST_UNITS)

    def _choose_many(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        choices = self.inner._choose_many([problem.passages for problem in problems])
        return [self._pruned(problem, choice) for problem, choice in zip(problems, choices, strict=True)]

    def _pruned(self, problem: SelectionProblem, choice: Choice) -> Choice:
        passages, chosen = problem.passages, choice.order
        trace: dict[str, Any] = {"selector": self.inner.name}
        if choice.text is not None:
            return replace(choice, order=units_of(problem, chosen), trace={**choice.trace, **trace})
        if not chosen and passages.costs.min() > passages.capacity:
            chosen = tuple(passages.ranking[:1])
        kept, value, counts = self._kept(problem, chosen)
        trace |= {"passages": [passages.chunks[index].id for index in chosen], **counts}
        if not chosen:
            trace["reason"] = choice.trace.get("reason") or f"{self.inner.name} took no passage"
        return Choice(kept, value, trace)

    def _kept(self, problem: SelectionProblem, passages: Order) -> tuple[Order, float, dict[str, Any]]:
        """Return the sentences of passages that stay, their value, and what the trace records about it."""
        offered = [index for index in units_of(problem, passages) if problem.costs[index] <= problem.capacity]
        # Of more sentences than that the best by the first pass are considered.
        best = set(sorted(offered, key=lambda index: -problem.relevance[index])[: self.max_units])
        offered = [index for index in offered if index in best]
        if not offered:
            return (), 0.0, {}
        pool = problem.subset(offered)
        scorer = self._scorer(pool)
        scaling = Scaling()
        if not gives_probabilities(self._reranker):
            scaling = Scaling.of(scorer([(row,) for row in range(len(offered))]))
        price = self.cost_weight / REFERENCE_TOKENS
        scored: list[int] = []

        def score(orders: Sequence[Order]) -> FloatArray:
            scored.append(len(orders))
            tokens = np.array([pool.summed_tokens(order) for order in orders])
            return scaling(scorer(orders)) - price * tokens

        rows, _ = eliminate(
            tuple(range(len(offered))), score, lambda order: pool.cost(order) <= pool.budget_tokens, self.tolerance
        )
        counts = {
            "reranker": self._reranker.name,
            "dropped": len(offered) - len(rows),
            "orders_scored": sum(scored),
            "scorer_calls": len(scored),
            "orders_computed": scorer.num_computed,
            "truncated": scorer.num_truncated,
        }
        value = float(scorer([rows])[0]) if rows else 0.0
        return tuple(offered[row] for row in rows), value, counts


@dataclass(kw_only=True, eq=False)
class SentenceThreshold(RerankingSelector):
    """Takes every sentence whose own value is high enough, passage by passage in rank order, as far as they fit.

    The rule of Provence (Chirkova et al., "Provence: efficient and robust context pruning for retrieval-augmented
    generation", 2025, arXiv 2501.16214, section 3), in which whole sentences stay if the model's score for them reaches
    a threshold. The paper's trained model is not part of this: the score is that of any reranker.

    Args:
        threshold: The least value of a sentence, in [0, 1].
        relative: Whether the threshold is a share of the best sentence's value, which makes it mean about the same for
            every reranker.
        at_least: Sentences to keep, best first, even if fewer pass; 0 allows an empty selection.
        k: The most passages to look at, best-ranked first; None for all.
    """

    threshold: float = checked(0.5, check_range, low=0, high=1, hint="0.1 to 0.7 are usual")
    relative: bool = True
    at_least: int = checked(1, check_count, hint="1 is usual", least=0)
    k: int | None = checked(None, check_count, hint="5 is usual")
    unit: str = "sentence"
    name = "sentence-threshold"

    def _choose(self, problem: SelectionProblem) -> Choice:
        offered = units_of(problem, problem.passages.ranking[: self.k])
        scorer = self._scorer(problem)
        values = dict(zip(offered, scorer([(index,) for index in offered]).tolist(), strict=True))
        best_first = sorted(offered, key=lambda index: -values[index])
        best = values[best_first[0]] if best_first else 0.0
        threshold = self.threshold * best if self.relative else self.threshold
        kept = {index for index in offered if values[index] >= threshold} | set(best_first[: self.at_least])
        order = fill([index for index in offered if index in kept], problem.costs, problem.capacity)
        if self.at_least and not order:
            order = fill(best_first, problem.costs, problem.capacity, 1)
        trace: dict[str, Any] = {"threshold": threshold, "passing": len(kept)}
        if not kept:
            trace["reason"] = f"no sentence has a value of at least {threshold:.3g}; the best has {best:.3g}"
        value = float(np.mean([values[index] for index in order])) if order else 0.0
        return self._scored(problem, order, value, orders_scored=len(offered), scorer_calls=1, **trace)


@dataclass(kw_only=True, eq=False)
class ExtractiveCompression(EmbeddingSelector):
    """Takes the sentences that are most similar to the question, in the order of their passages.

    The extractive compressor of RECOMP (Xu, Shi and Choi, "RECOMP: improving retrieval-augmented LMs with compression
    and selective augmentation", 2023, arXiv 2310.04408, section 3.1): sentences are ranked by the inner product of
    their embedding with that of the question, and the first k stay. The paper trains its encoder for this; here it is
    any embedder.

    Args:
        k: The most sentences to take.
    """

    k: int = checked(5, check_count, hint="1 to 5 are usual")
    unit: str = "sentence"
    name = "extractive-compression"

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = self._with_cosines(problem)
        kept = set(fill(problem.by_relevance, problem.costs, problem.capacity, self.k))
        in_order = units_of(problem, problem.passages.ranking)
        return unscored(problem, tuple(index for index in in_order if index in kept))
