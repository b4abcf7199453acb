"""`naive`: rerank the candidates one by one and fill the budget greedily, as most RAG systems do."""

from __future__ import annotations

import numpy as np

from corag.registry import reranker as make_reranker
from corag.selectors.base import BudgetedSelector, Choice, Problem, fill
from corag.types import Reranker, TokenCounter

DEFAULT_RERANKER = "minilm-maxsim"


class Naive(BudgetedSelector):
    """Every chunk valued by itself; the best that still fits is taken until nothing fits.

    Args:
        reranker: Name or object.
        tokens: The answering model's token counter.
    """

    name = "naive"

    def __init__(self, *, reranker: str | Reranker = DEFAULT_RERANKER, tokens: TokenCounter | None = None) -> None:
        super().__init__(tokens=tokens)
        self.reranker = make_reranker(reranker) if isinstance(reranker, str) else reranker

    def _choose(self, problem: Problem, budget_tokens: int) -> Choice:
        scorer = problem.scorer(self.reranker)
        singles = scorer([(index,) for index in range(len(problem.chunks))])
        order = fill([int(i) for i in np.argsort(-singles, kind="stable")], problem.costs, budget_tokens)
        value = float(scorer([order])[0]) if order else 0.0
        return Choice(
            order,
            value,
            {
                "reranker": self.reranker.name,
                "orders_scored": len(singles),
                "scorer_calls": 1,
                "truncated": scorer.num_truncated,
            },
        )
