"""`similarity-cutoff`: every candidate that is similar enough."""

from __future__ import annotations

import math

from corag.errors import InputError
from corag.selectors.base import BudgetedSelector, Choice, Problem
from corag.selectors.ranked import keep_best, unscored
from corag.types import TokenCounter


class SimilarityCutoff(BudgetedSelector):
    """The candidates of at least a given similarity, most similar first, as far as they fit.

    Args:
        minimum: The least similarity, in [-1, 1]; with `relative`, in [0, 1].
        relative: Whether `minimum` is a share of the best candidate's similarity. Where that is below 0, only
            candidates as similar as the best pass.
        at_least: Candidates to keep even where fewer pass; 0 allows an empty selection.
        tokens: The answering model's token counter.
    """

    name = "similarity-cutoff"

    def __init__(
        self,
        *,
        minimum: float = 0.3,
        relative: bool = False,
        at_least: int = 1,
        tokens: TokenCounter | None = None,
    ) -> None:
        super().__init__(tokens=tokens)
        low = 0 if relative else -1
        if not low <= minimum <= 1 or math.isnan(minimum):
            raise InputError(f"minimum must be from {low} to 1, got {minimum!r}; 0.2 to 0.5 are usual")
        if not isinstance(at_least, int) or at_least < 0:
            raise InputError(f"at_least must be a whole number of at least 0, got {at_least!r}; 1 is usual")
        self.minimum, self.relative, self.at_least = minimum, relative, at_least

    def _choose(self, problem: Problem, budget_tokens: int) -> Choice:
        best = float(problem.similarities.max())
        minimum = self.minimum
        if self.relative:
            minimum = self.minimum * best if best > 0 else best
        passing = int((problem.similarities >= minimum).sum())
        trace = {"minimum": minimum, "passing": passing}
        kept = max(passing, self.at_least)
        if not kept:
            reason = f"no candidate has a similarity of at least {minimum:.3g}; the best has {best:.3g}"
            return unscored(problem, (), {**trace, "reason": reason})
        return unscored(problem, keep_best(problem, kept, budget_tokens), trace)
