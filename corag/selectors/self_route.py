"""`self-route`: a selector around two others that asks the reader which one to use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from common.checks import check_range
from corag.errors import InputError
from corag.registry import READERS, SELECTORS
from corag.selectors.base import BudgetedSelector, Choice, checked
from corag.selectors.problem import SelectionProblem
from corag.types import Reader, TokenCounter


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

    part: str | BudgetedSelector = "top-k"
    full: str | BudgetedSelector = "full"
    reader: str | Reader = "extractive"
    min_confidence: float = checked(0.5, check_range, low=0, high=1, hint="typical: 0.5")
    name = "self-route"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.part = self._part = built(self.part, self.tokenizer)
        self.full = self._full = built(self.full, self.tokenizer)
        self.reader = self._reader = READERS.make(self.reader)

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


def built(selector: str | BudgetedSelector, tokens: TokenCounter, **settings: Any) -> BudgetedSelector:
    """Return a selector given by name or as an object, which takes no more settings."""
    made = SELECTORS.make(selector, defaults={"tokenizer": tokens}, **settings)
    if not isinstance(made, BudgetedSelector):
        raise InputError(f"selector {made.name!r} is no BudgetedSelector; derive it from that class to wrap it")
    return made
