"""Selectors that take the retriever's ranking as it is: `none`, `full`, `top-k`, `top-tokens`, `similarity-cutoff`."""

from __future__ import annotations

from dataclasses import dataclass

from common.checks import check_choice, check_count, check_range
from corag.selectors.base import BudgetedSelector, Choice, ComparingSelector, checked, fill, keep_best, unscored
from corag.selectors.problem import SelectionProblem


class RankedSelector(BudgetedSelector):
    """A selector for which no model reads candidates."""

    def _reads(self, passages: SelectionProblem) -> bool:
        return False


class NoContext(RankedSelector):
    """Takes nothing: the reader answers from what it knows."""

    name = "none"
    compares = False

    def _choose(self, problem: SelectionProblem) -> Choice:
        return unscored(problem, (), {"reason": "the selector 'none' never takes anything"})


class Full(RankedSelector):
    """Takes all candidates that fit, in the order in which they were given."""

    name = "full"
    compares = False

    def _choose(self, problem: SelectionProblem) -> Choice:
        return unscored(problem, fill(range(len(problem.chunks)), problem.costs, problem.capacity))


@dataclass(kw_only=True, eq=False)
class TopK(RankedSelector):
    """Takes the k best-ranked candidates that fit the budget, best first.

    The ranking is the retriever's: `Candidate.rank` if it is given, else the order of the similarities.

    Args:
        k: The most chunks to take.
    """

    k: int = checked(5, check_count, hint="typical: 3-20")
    name = "top-k"

    def _choose(self, problem: SelectionProblem) -> Choice:
        return unscored(problem, fill(problem.ranking, problem.costs, problem.capacity, self.k))


@dataclass(kw_only=True, eq=False)
class TopTokens(RankedSelector):
    """Takes the best-ranked candidates, as `top-k` does, until a number of tokens is full, even if more would fit.

    Args:
        num_tokens: Tokens to fill, counted chunk by chunk with a separator between two; at least 1.
        skip: Whether a candidate that no longer fits is passed over, or ends the selection.
    """

    num_tokens: int = checked(1024, check_count, hint="typical: 256-4096")
    skip: bool = checked(True, check_choice, names=(True, False))
    name = "top-tokens"

    def _choose(self, problem: SelectionProblem) -> Choice:
        capacity = min(problem.capacity, self.num_tokens + problem.separator_tokens)
        ranking = problem.ranking
        if not self.skip:
            full = problem.costs[ranking].cumsum() > capacity
            ranking = ranking[: int(full.argmax()) if full.any() else len(ranking)]
        return unscored(problem, fill(ranking, problem.costs, capacity), {"num_tokens": self.num_tokens})


@dataclass(kw_only=True, eq=False)
class SimilarityCutoff(ComparingSelector):
    """Takes the candidates whose cosine is at least a given value, most similar first, as far as they fit.

    If none is, it takes the most similar one that fits.

    Args:
        minimum: The least cosine, in [-1, 1].
    """

    minimum: float = checked(0.3, check_range, low=-1, high=1, hint="typical: 0.2-0.5")
    name = "similarity-cutoff"

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = self._comparable(problem)
        passing = int((problem.relevance >= self.minimum).sum())
        return unscored(problem, keep_best(problem, max(passing, 1)), {"minimum": self.minimum, "passing": passing})
