"""`naive`: rerank the candidates one by one and fill the budget greedily, as most RAG systems do."""

from __future__ import annotations

import numpy as np

from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy, check_policy
from corag.selectors.base import BudgetedSelector, Choice, Problem, fill
from corag.selectors.defaults import reranker_or_default
from corag.types import Reranker, TokenCounter


class Naive(BudgetedSelector):
    """Every chunk that fits valued by itself; the best that still fits is taken until nothing fits.

    Args:
        reranker: Name or object; None for the default, see `corag.selectors.defaults`.
        window: What becomes of orders that are longer than the reranker's window; see `corag.rerankers.window`.
        tokens: The answering model's token counter.
    """

    name = "naive"

    def __init__(
        self,
        *,
        reranker: str | Reranker | None = None,
        window: WindowPolicy = DEFAULT_POLICY,
        tokens: TokenCounter | None = None,
    ) -> None:
        super().__init__(tokens=tokens)
        self.reranker = reranker_or_default(reranker)
        self.window = check_policy(window)

    def _choose(self, problem: Problem, budget_tokens: int) -> Choice:
        scorer = problem.scorer(self.reranker, self.window)
        limits = problem.limits(scorer, budget_tokens)
        offered = limits.fitting
        singles = scorer([(index,) for index in offered.tolist()])
        order = fill(offered[np.argsort(-singles, kind="stable")].tolist(), limits.costs, limits.budget)
        value = float(scorer([order])[0]) if order else 0.0
        while self.window == "forbid" and order in scorer.overlong_orders:
            # Its length is not always the sum of its parts' lengths; alone, every chunk fits.
            order = order[:-1]
            value = float(scorer([order])[0])
        return Choice(
            order,
            value,
            {
                "reranker": self.reranker.name,
                "orders_scored": len(singles),
                "scorer_calls": 1,
                "truncated": scorer.num_truncated,
                **problem.window_trace(scorer, limits),
            },
        )
