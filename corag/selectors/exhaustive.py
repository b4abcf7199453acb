"""`upper`: every ordered combination of at most five chunks, scored; the bound that a search can reach."""

from __future__ import annotations

import search
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy, check_policy
from corag.selectors.base import BudgetedSelector, Choice, Problem
from corag.selectors.defaults import reranker_or_default
from corag.types import Reranker, TokenCounter


class Upper(BudgetedSelector):
    """Exhaustive: the best value there is, at the price of scoring everything.

    Args:
        reranker: Name or object; None for the default, see `corag.selectors.defaults`.
        max_length: The most chunks of a combination.
        max_orders: The most orders to score; beyond it a clear error instead of a run without end. Where the
            order of chunks does not matter to the reranker, each set counts once.
        window: What becomes of orders that are longer than the reranker's window; see `corag.rerankers.window`.
        tokens: The answering model's token counter.
    """

    name = "upper"

    def __init__(
        self,
        *,
        reranker: str | Reranker | None = None,
        max_length: int = 5,
        max_orders: int = 25_000,
        window: WindowPolicy = DEFAULT_POLICY,
        tokens: TokenCounter | None = None,
    ) -> None:
        super().__init__(tokens=tokens)
        self.reranker = reranker_or_default(reranker)
        self.max_length, self.max_orders = max_length, max_orders
        self.window = check_policy(window)

    def _choose(self, problem: Problem, budget_tokens: int) -> Choice:
        scorer = problem.scorer(self.reranker, self.window)
        limits = problem.limits(scorer, budget_tokens)
        result = search.exhaustive(
            limits.costs,
            scorer,
            limits.budget,
            self.max_length,
            max_orders=self.max_orders,
            ordered=scorer.order_matters,
        )
        return Choice(
            result.order,
            result.value,
            {
                "reranker": self.reranker.name,
                "orders_scored": result.num_scored,
                "scorer_calls": result.num_calls,
                "truncated": scorer.num_truncated,
                **problem.window_trace(scorer, limits),
            },
        )
