"""Searches of one question: one run per reranker, c and lambda answers for every count of iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import search
from corag.rerankers.scorers import CachedScorer
from corag.rerankers.window import WindowPolicy
from corag.selectors.base import Problem
from corag.selectors.corag.selector import Corag, scaled
from corag.types import FloatArray, Order, Reranker, TokenCounter


@dataclass(frozen=True, slots=True)
class Found:
    """What a search with a count of iterations finds.

    Attributes:
        order: The best order.
        num_scored: Orders scored by then.
        tokens_scored: Tokens of their joined texts.
        seconds: What they took to score when they were scored first, and the search itself.
    """

    order: Order
    num_scored: int
    tokens_scored: int
    seconds: float


class TimedScorer:
    """Remembers what scoring each order took when it was first scored.

    Args:
        memo: Scores and remembers values.

    Attributes:
        memo: The same.
    """

    def __init__(self, memo: CachedScorer) -> None:
        self.memo = memo
        self._seconds: dict[Order, float] = {}

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        new = self.memo.missing(orders)
        started = perf_counter()
        values = self.memo(orders)
        if new:
            self._seconds.update(dict.fromkeys(new, (perf_counter() - started) / len(new)))
        return values

    @property
    def computed(self) -> list[Order]:
        """Distinct orders (sets, where order does not matter) that were scored."""
        return list(self._seconds)

    def seconds(self, orders: Sequence[Order]) -> float:
        """Return what scoring the orders took; 0 for one that was scored by another than this."""
        keys = orders if self.memo.order_matters else {tuple(sorted(order)) for order in orders}
        return sum(self._seconds.get(key, 0.0) for key in keys)


def search_all(
    problem: Problem,
    budget_tokens: int,
    reranker: Reranker,
    scorer: TimedScorer,
    iterations: Sequence[int],
    exploration: float,
    cost_weight: float,
    tokens: TokenCounter,
    window: WindowPolicy,
) -> list[Found]:
    """Return what each count of iterations, in rising order, finds."""
    config = search.SearchConfig(
        policy="paper", iterations=max(iterations), exploration=exploration, cost_weight=cost_weight
    )
    inner_budget = budget_tokens + problem.separator_tokens
    limits = problem.limits(scorer.memo, inner_budget)
    singles = [(int(index),) for index in limits.fitting]
    scorer(singles)  # finds the scale; the first expansion scores the same orders
    score = scaled(scorer.memo, problem, inner_budget, "query")
    costs = problem.costs.tolist()
    rounds: list[tuple[int, int, float]] = []
    searching_s, scoring_s, num_scored, tokens_scored = 0.0, 0.0, 0, 0
    resumed = perf_counter()

    def count_and_score(orders: Sequence[Order]) -> FloatArray:
        nonlocal resumed, searching_s, scoring_s, num_scored, tokens_scored
        searching_s += perf_counter() - resumed
        scorer(orders)
        scoring_s += scorer.seconds(orders)
        num_scored += len(orders)
        tokens_scored += sum(costs[index] for order in orders for index in order)
        tokens_scored -= problem.separator_tokens * len(orders)
        rounds.append((num_scored, tokens_scored, searching_s + scoring_s))
        resumed = perf_counter()
        return score(orders)

    result = search.search(limits.costs, count_and_score, limits.budget, config)
    found = []
    for count in iterations:
        ran = min(count, len(result.incumbents))
        order = result.incumbents[ran - 1] if ran else ()
        if order and int(tokens.count([problem.text(order)])[0]) > budget_tokens:
            # Only under tokenizers whose counts do not add up: search again the way the selector does.
            order = _exact_order(problem, budget_tokens, reranker, count, exploration, cost_weight, tokens, window)
        found.append(Found(order, *(rounds[ran - 1] if ran else (0, 0, 0.0))))
    return found


def _exact_order(
    problem: Problem,
    budget_tokens: int,
    reranker: Reranker,
    iterations: int,
    exploration: float,
    cost_weight: float,
    tokens: TokenCounter,
    window: WindowPolicy,
) -> Order:
    selector = Corag(
        reranker=reranker,
        policy="paper",
        iterations=iterations,
        exploration=exploration,
        cost_weight=cost_weight,
        window=window,
        tokens=tokens,
    )
    chosen = selector.select_from(problem, budget_tokens).ids
    position = {chunk.id: index for index, chunk in enumerate(problem.chunks)}
    return tuple(position[name] for name in chosen)
