"""`top-k`: the best-ranked candidates as the retriever gave them."""

from __future__ import annotations

from corag.errors import InputError
from corag.selectors.base import BudgetedSelector, Choice, Problem, fill
from corag.selectors.ranked import by_similarity, unscored
from corag.types import TokenCounter


class TopK(BudgetedSelector):
    """The k most similar candidates that fit the budget, best first.

    Args:
        k: The most chunks to take.
        tokens: The answering model's token counter.
    """

    name = "top-k"

    def __init__(self, *, k: int = 5, tokens: TokenCounter | None = None) -> None:
        super().__init__(tokens=tokens)
        if not isinstance(k, int) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, got {k!r}; 3 to 20 are usual")
        self.k = k

    def _choose(self, problem: Problem, budget_tokens: int) -> Choice:
        return unscored(problem, fill(by_similarity(problem), problem.costs, budget_tokens, self.k))
