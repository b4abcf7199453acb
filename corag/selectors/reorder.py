"""`reorder`: any selector's chunks with the best at both ends, where models read most closely.

Liu et al., "Lost in the middle: how language models use long contexts" (2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, get_args

from corag.errors import InputError
from corag.registry import selector as make_selector
from corag.selectors.base import BudgetedSelector, Choice, Problem
from corag.types import TokenCounter

Item = TypeVar("Item")

By = Literal["order", "similarity"]


def best_at_both_ends(ranking: Sequence[Item]) -> list[Item]:
    """Return a ranking, best first, with its best at both ends: first, third, fifth, ... sixth, fourth, second."""
    return [*ranking[::2], *ranking[1::2][::-1]]


class Reorder(BudgetedSelector):
    """Chooses as another selector does, and puts the best of it first and last.

    What a selector wrote itself (a summary) has no order to change and stays as it is.

    Args:
        selector: Name or object; it must be one of this package, since its budget is kept here.
        by: What is best: what stands first in the selector's own `order`, or the chunk of highest `similarity`.
        tokens: The answering model's token counter; handed on to a selector given by name.
        settings: Settings of a selector given by name.
    """

    name = "reorder"

    def __init__(
        self,
        *,
        selector: str | BudgetedSelector = "top-k",
        by: By = "order",
        tokens: TokenCounter | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(tokens=tokens)
        if by not in get_args(By):
            raise InputError(f"by is {by!r}; it must be one of {', '.join(get_args(By))}")
        made: Any = selector
        if isinstance(selector, str):
            made = make_selector(selector, tokens=self.tokens, **settings)
        elif settings:
            raise InputError(f"{', '.join(settings)} cannot be set for a selector that is built already; build it so")
        if not isinstance(made, BudgetedSelector):
            raise InputError(f"selector {made.name!r} is no BudgetedSelector; derive it from that class to reorder it")
        self.inner, self.by = made, by

    def _choose(self, problem: Problem, budget_tokens: int) -> Choice:
        return self._reordered(problem, self.inner._choose(problem, budget_tokens))

    def _choose_many(self, problems: Sequence[Problem], budget_tokens: int) -> Sequence[Choice | None]:
        choices = self.inner._choose_many(problems, budget_tokens)
        return [
            None if choice is None else self._reordered(problem, choice)
            for problem, choice in zip(problems, choices, strict=True)
        ]

    def _reordered(self, problem: Problem, choice: Choice) -> Choice:
        trace = {**choice.trace, "selector": self.inner.name}
        if choice.text is not None:
            return replace(choice, trace=trace)
        ranking = list(choice.order)
        if self.by == "similarity":
            ranking.sort(key=lambda index: (-problem.similarities[index], index))
        # The value is that of the order before: what a reranker gives this one was not asked.
        return replace(choice, order=tuple(best_at_both_ends(ranking)), trace=trace)
