"""Selectors that take the retriever's ranking as it is: `none`, `full`, `top-k`, `top-tokens`, `similarity-cutoff`."""

from __future__ import annotations

from corag.checks import check_count, check_range
from corag.models.cached import CachedEmbedder
from corag.selectors.base import BudgetedSelector, Choice, fill, keep_best, unscored
from corag.selectors.problem import Problem
from corag.types import Embedder, TokenCounter


class NoContext(BudgetedSelector):
    """Takes nothing: the reader answers from what it knows.

    Args:
        tokens: The answering model's token counter.
    """

    name = "none"

    def _choose(self, problem: Problem) -> Choice:
        return unscored(problem, (), {"reason": "the selector 'none' never takes anything"})


class Full(BudgetedSelector):
    """Takes all candidates that fit, in the order in which they were given.

    Args:
        tokens: The answering model's token counter.
    """

    name = "full"

    def _choose(self, problem: Problem) -> Choice:
        return unscored(problem, fill(range(len(problem.chunks)), problem.costs, problem.capacity))


class TopK(BudgetedSelector):
    """Takes the k most relevant candidates that fit the budget, best first.

    Args:
        k: The most chunks to take.
        tokens: The answering model's token counter.
    """

    name = "top-k"

    def __init__(self, *, k: int = 5, tokens: TokenCounter | None = None) -> None:
        super().__init__(tokens=tokens)
        check_count("k", k, "3 to 20 are usual")
        self.k = k

    def _choose(self, problem: Problem) -> Choice:
        return unscored(problem, fill(problem.ranking, problem.costs, problem.capacity, self.k))


class TopTokens(BudgetedSelector):
    """Takes the most relevant candidates until a number of tokens is full, even if the budget allows more.

    Args:
        num_tokens: Tokens to fill, counted chunk by chunk with a separator between two; at least 1.
        skip: Whether a candidate that no longer fits is passed over, or ends the selection.
        tokens: The answering model's token counter.
    """

    name = "top-tokens"

    def __init__(self, *, num_tokens: int = 1024, skip: bool = True, tokens: TokenCounter | None = None) -> None:
        super().__init__(tokens=tokens)
        check_count("num_tokens", num_tokens, "256 to 4096 are usual")
        self.num_tokens, self.skip = num_tokens, skip

    def _choose(self, problem: Problem) -> Choice:
        room = min(problem.capacity, self.num_tokens + problem.separator_tokens)
        ranking = problem.ranking
        if not self.skip:
            full = problem.costs[ranking].cumsum() > room
            ranking = ranking[: int(full.argmax()) if full.any() else len(ranking)]
        return unscored(problem, fill(ranking, problem.costs, room), {"num_tokens": self.num_tokens})


class SimilarityCutoff(BudgetedSelector):
    """Takes the candidates of at least a given similarity, most similar first, as far as they fit.

    Args:
        minimum: The least cosine, in [-1, 1]; with `relative`, in [0, 1].
        relative: Whether `minimum` is a share of the best similarity, on any scale. If that is below 0, only candidates
            as similar as the best pass.
        at_least: Candidates to keep even where fewer pass; 0 allows an empty selection.
        embedder: Computes cosines where the candidates come without similarities that can be compared; name or object.
        tokens: The answering model's token counter.
    """

    name = "similarity-cutoff"

    def __init__(
        self,
        *,
        minimum: float = 0.3,
        relative: bool = False,
        at_least: int = 1,
        embedder: str | Embedder | None = None,
        tokens: TokenCounter | None = None,
    ) -> None:
        super().__init__(tokens=tokens)
        check_range("minimum", minimum, 0 if relative else -1, 1, "0.2 to 0.5 are usual")
        check_count("at_least", at_least, "1 is usual", least=0)
        self.minimum, self.relative, self.at_least = minimum, relative, at_least
        self._embed = None if embedder is None else CachedEmbedder(embedder).vectors

    def _choose(self, problem: Problem) -> Choice:
        problem = problem.comparable(self._embed, only_cosines=not self.relative)
        best = float(problem.relevance.max())
        minimum = self.minimum
        if self.relative:
            minimum = self.minimum * best if best > 0 else best
        passing = int((problem.relevance >= minimum).sum())
        trace = {"minimum": minimum, "passing": passing}
        kept = max(passing, self.at_least)
        if not kept:
            reason = f"no candidate has a similarity of at least {minimum:.3g}; the best has {best:.3g}"
            return unscored(problem, (), {**trace, "reason": reason})
        return unscored(problem, keep_best(problem, kept), trace)
