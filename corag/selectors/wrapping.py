"""Selectors around others: `reorder` puts the best chunks at both ends, `self-route` asks the reader first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from corag.checks import check_choice, check_range
from corag.errors import InputError
from corag.naming import Spelling
from corag.registry import SELECTORS
from corag.registry import reader as make_reader
from corag.registry import tokens as make_tokens
from corag.selectors.base import BudgetedSelector, Choice
from corag.selectors.problem import SelectionProblem
from corag.types import Candidate, Reader, TokenCounter

Item = TypeVar("Item")

By = Literal["order", "similarity"]


def best_at_both_ends(ranking: Sequence[Item]) -> list[Item]:
    """Return a ranking, best first, with its best at both ends: first, third, fifth, ... sixth, fourth, second."""
    return [*ranking[::2], *ranking[1::2][::-1]]


class Reorder(BudgetedSelector):
    """Chooses as another selector does and puts the best chunks first and last, where models read most closely.

    After Liu et al., "Lost in the middle: how language models use long contexts" (2024). A text that the selector wrote
    itself, such as a summary, has no order to change and stays as it is.

    Args:
        selector: Name or object; an object must be a `BudgetedSelector`.
        by: What is best: the first in the selector's own `order`, or the chunk of highest `similarity`.
        tokens: Counts tokens as the answering model does: name or object; passed on to a selector given by name.
        settings: Settings of a selector given by name.
    """

    name = "reorder"

    def __init__(
        self,
        *,
        selector: Spelling | BudgetedSelector = "top-k",
        by: By = "order",
        tokens: Spelling | TokenCounter | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(tokens=make_tokens(tokens or "minilm"))
        check_choice("by", by, By)
        self.inner, self.by = built(selector, self.tokens, **settings), by
        self.unit, self.max_units, self._unit = self.inner.unit, self.inner.max_units, self.inner._unit

    def problem(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> SelectionProblem:
        """Return what the selector chooses from."""
        return self.inner.problem(query, candidates, budget_tokens)

    def _choose_many(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        choices = self.inner._choose_many(problems)
        return [self._reordered(problem, choice) for problem, choice in zip(problems, choices, strict=True)]

    def _reordered(self, problem: SelectionProblem, choice: Choice) -> Choice:
        trace = {**choice.trace, "selector": self.inner.name}
        if choice.text is not None:
            return replace(choice, trace=trace)
        ranking = list(choice.order)
        if self.by == "similarity":
            ranking.sort(key=lambda index: (-problem.relevance[index], index))
        # The value is that of the order before; the reranker does not value the new one.
        return replace(choice, order=tuple(best_at_both_ends(ranking)), trace=trace)


@dataclass(kw_only=True, eq=False)
class SelfRoute(BudgetedSelector):
    """Asks the reader once with a small selection; if it cannot answer, takes a large one.

    After Li, Li, Zhang, Mei and Bendersky, "Retrieval augmented generation or long-context LLMs? A comprehensive study
    and hybrid approach" (2024), section 5. The reader's answer is in the trace (`routed`, `answer`), so that nobody has
    to ask again.

    Args:
        part: Selector of the small selection, by name or as a `BudgetedSelector`; by default `top-k` with the paper's k
            of 5.
        full: Selector of the large one.
        reader: Name or object. It says that it cannot answer with an empty text.
        min_confidence: A reader that reports a confidence cannot answer below this either, in [0, 1].
    """

    part: Spelling | BudgetedSelector = "top-k"
    full: Spelling | BudgetedSelector = "full"
    reader: Spelling | Reader = "extractive"
    min_confidence: float = 0.5
    name = "self-route"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("min_confidence", self.min_confidence, 0, 1, "0.5 is usual")
        self.part = self._part = built(self.part, self.tokens)
        self.full = self._full = built(self.full, self.tokens)
        self.reader = self._reader = make_reader(self.reader)

    def _choose(self, problem: SelectionProblem) -> Choice:
        [part], [full] = self._part._choose_many([problem]), self._full._choose_many([problem])
        if part.text is None and full.text is None and set(full.order) <= set(part.order):
            # There is nothing more to read, whatever the reader says.
            return _routed(part, self._part, asked=False)
        if not part.order:
            return _routed(full, self._full, asked=False)
        answer = self._reader.answer(problem.query, problem.text(part.order) if part.text is None else part.text)
        sure = answer.confidence is None or answer.confidence >= self.min_confidence
        if answer.text.strip() and sure:
            return _routed(part, self._part, asked=True, answer=answer.text)
        return _routed(full, self._full, asked=True)


def _routed(choice: Choice, selector: BudgetedSelector, **trace: Any) -> Choice:
    return replace(choice, trace={**choice.trace, "routed": selector.name, **trace})


def built(selector: Spelling | BudgetedSelector, tokens: TokenCounter, **settings: Any) -> BudgetedSelector:
    """Return a selector given by name or as an object, which takes no more settings."""
    made = SELECTORS.offer(selector, {"tokens": tokens}, **settings)
    if not isinstance(made, BudgetedSelector):
        raise InputError(f"selector {made.name!r} is no BudgetedSelector; derive it from that class to wrap it")
    return made
