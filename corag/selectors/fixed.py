"""Selectors that decide nothing by the question: nothing, everything, so many tokens."""

from __future__ import annotations

from corag.errors import InputError
from corag.selectors.base import BudgetedSelector, Choice, Problem, fill
from corag.selectors.ranked import by_similarity, unscored
from corag.types import TokenCounter


class NoContext(BudgetedSelector):
    """Takes nothing: the reader answers from what it knows.

    Args:
        tokens: The answering model's token counter.
    """

    name = "none"

    def _choose(self, problem: Problem, budget_tokens: int) -> Choice:
        reason = "the selector 'none' never takes anything"
        return Choice((), 0.0, {"orders_scored": 0, "scorer_calls": 0, "reason": reason})


class Full(BudgetedSelector):
    """Takes all candidates that fit, in the order in which they were given.

    Args:
        tokens: The answering model's token counter.
    """

    name = "full"

    def _choose(self, problem: Problem, budget_tokens: int) -> Choice:
        return unscored(problem, fill(range(len(problem.chunks)), problem.costs, budget_tokens))


class TopTokens(BudgetedSelector):
    """Takes the most similar candidates until a number of tokens is full, whatever the budget still allows.

    Args:
        num_tokens: Tokens to fill, counted chunk by chunk with a separator between two; at least 1.
        skip: Whether a candidate that no longer fits is passed over, or is the end.
        tokens: The answering model's token counter.
    """

    name = "top-tokens"

    def __init__(self, *, num_tokens: int = 1024, skip: bool = True, tokens: TokenCounter | None = None) -> None:
        super().__init__(tokens=tokens)
        if not isinstance(num_tokens, int) or isinstance(num_tokens, bool) or num_tokens < 1:
            raise InputError(
                f"num_tokens must be a whole number of at least 1, got {num_tokens!r}; 256 to 4096 are usual"
            )
        self.num_tokens, self.skip = num_tokens, skip

    def _choose(self, problem: Problem, budget_tokens: int) -> Choice:
        # A combination stands with one separator less than its summed costs hold.
        room = min(budget_tokens, self.num_tokens + problem.separator_tokens)
        ranking = by_similarity(problem)
        if not self.skip:
            full = problem.costs[ranking].cumsum() > room
            ranking = ranking[: int(full.argmax()) if full.any() else len(ranking)]
        return unscored(problem, fill(ranking, problem.costs, room), {"num_tokens": self.num_tokens})
