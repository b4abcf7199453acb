"""Searches of a question: one run per reranker, c and lambda answers for every count of iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import search
from corag.rerankers.scorers import CachedScorer, score_together
from corag.rerankers.window import WindowPolicy
from corag.selectors.corag.search import SearchPlan, search_config, search_problems
from corag.selectors.corag.selector import Corag
from corag.selectors.problem import SelectionProblem
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

    order: Order = ()
    num_scored: int = 0
    tokens_scored: int = 0
    seconds: float = 0.0


class TimedScoring:
    """Scores the orders of searches of one question with one reranker, and measures the searches.

    Attributes:
        order_s: Seconds that each distinct order (set, where order does not matter) took when it was first scored.
        problem: The question with its candidates.
        rounds: Of the last search, what was scored up to the end of each round.
    """

    def __init__(self, problem: SelectionProblem) -> None:
        self.problem = problem
        self.order_s: dict[Order, float] = {}
        self.rounds: list[Found] = []

    def search(self, plan: SearchPlan) -> search.SearchResult:
        """Search the question and measure it; an order that was scored before is charged what it took then."""
        self.rounds = []
        self._resumed: float | None = None
        (searched,) = search_problems([self.problem], [plan], score_together=self)
        return searched.result

    def __call__(self, requests: Sequence[tuple[CachedScorer, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of a scorer's orders, `[[n]]`."""
        ((scorer, orders),) = requests
        started = perf_counter()
        new = scorer.missing(orders)
        values = score_together(requests)
        if new:
            self.order_s.update(dict.fromkeys(new, (perf_counter() - started) / len(new)))
        # The first call finds the scale; the first round scores the same orders and is charged for them.
        if self._resumed is not None:
            before = self.rounds[-1] if self.rounds else Found()
            keys = orders if scorer.order_matters else {tuple(sorted(order)) for order in orders}
            now = Found(
                num_scored=before.num_scored + len(orders),
                tokens_scored=before.tokens_scored + sum(joined_tokens(self.problem, order) for order in orders),
                seconds=before.seconds + started - self._resumed + sum(self.order_s.get(key, 0.0) for key in keys),
            )
            self.rounds.append(now)
        self._resumed = perf_counter()
        return values


def joined_tokens(problem: SelectionProblem, order: Order) -> int:
    """Return the tokens of an order's joined text, by adding up its parts."""
    return sum(int(problem.costs[index]) for index in order) - problem.separator_tokens


def search_all(
    scoring: TimedScoring,
    reranker: Reranker,
    settings: Mapping[str, Any],
    cost_weight: float,
    window: WindowPolicy,
    iterations: Sequence[int],
    tokens: TokenCounter,
    preset: search.Preset | None = None,
) -> list[Found]:
    """Return what each count of iterations, in rising order, finds: what `Corag` finds with the same settings."""
    problem = scoring.problem
    config = search_config(reranker, preset, {**settings, "iterations": max(iterations)})
    result = scoring.search(SearchPlan(reranker, config, cost_weight, preset is not None, window))
    found = []
    for count in iterations:
        ran = min(count, len(result.incumbents))
        order = result.incumbents[ran - 1] if ran else ()
        if order and int(tokens.count([problem.text(order)])[0]) > problem.budget_tokens:
            # Only under tokenizers whose counts do not add up: search again the way the selector does.
            given = {**settings, "iterations": count}
            selector = Corag(
                reranker=reranker, window=window, tokens=tokens, preset=preset, search=given, cost_weight=cost_weight
            )
            position = {chunk.id: index for index, chunk in enumerate(problem.chunks)}
            order = tuple(position[name] for name in selector.select_from(problem).ids)
        found.append(replace(scoring.rounds[ran - 1], order=order) if ran else Found())
    return found
