"""`self-route`: the retrieved part where the reader can answer from it, else the full context.

Li, Li, Zhang, Mei and Bendersky, "Retrieval augmented generation or long-context LLMs? A comprehensive study and
hybrid approach" (2024), section 5.
"""

from __future__ import annotations

from typing import Any

from corag.errors import InputError
from corag.registry import reader as make_reader
from corag.registry import selector as make_selector
from corag.selectors.base import BudgetedSelector, Choice, Problem
from corag.types import Reader, TokenCounter


class SelfRoute(BudgetedSelector):
    """Asks the reader once with a small selection; where it cannot answer, takes a large one.

    The reader's word is in the trace (`routed`, `answer`), so that nobody has to ask it again for what it answered.

    Args:
        part: Selector of the small selection, by name or as an object of this package.
        full: Selector of the large one.
        reader: Name or object. It says that it cannot answer with an empty text.
        min_confidence: A reader that reports how sure it is cannot answer below this either, in [0, 1].
        part_settings: Settings of a `part` given by name; for `top-k` the paper's k of 5 is its default.
        full_settings: Settings of a `full` given by name.
        tokens: The answering model's token counter; handed on to selectors given by name.
    """

    name = "self-route"

    def __init__(
        self,
        *,
        part: str | BudgetedSelector = "top-k",
        full: str | BudgetedSelector = "full",
        reader: str | Reader = "extractive",
        min_confidence: float = 0.5,
        part_settings: dict[str, Any] | None = None,
        full_settings: dict[str, Any] | None = None,
        tokens: TokenCounter | None = None,
    ) -> None:
        super().__init__(tokens=tokens)
        if not 0 <= min_confidence <= 1:
            raise InputError(f"min_confidence must be from 0 to 1, got {min_confidence!r}; 0.5 is usual")
        self.part, self.full = self._built(part, part_settings), self._built(full, full_settings)
        self.reader = make_reader(reader) if isinstance(reader, str) else reader
        self.min_confidence = min_confidence

    def _built(self, selector: str | BudgetedSelector, settings: dict[str, Any] | None) -> BudgetedSelector:
        made: Any = selector
        if isinstance(selector, str):
            made = make_selector(selector, tokens=self.tokens, **(settings or {}))
        elif settings:
            raise InputError(f"settings of selector {selector.name!r} cannot be changed any more; build it with them")
        if not isinstance(made, BudgetedSelector):
            raise InputError(f"selector {made.name!r} is no BudgetedSelector; derive it from that class to route to it")
        return made

    def _choose(self, problem: Problem, budget_tokens: int) -> Choice:
        part = self.part._choose(problem, budget_tokens)
        full = self.full._choose(problem, budget_tokens)
        if part.text is None and full.text is None and set(full.order) <= set(part.order):
            # There is no more to read, whatever the reader says.
            return self._traced(part, self.part.name, {"asked": False})
        if not part.order:
            return self._traced(full, self.full.name, {"asked": False})
        answer = self.reader.answer(problem.query, problem.text(part.order) if part.text is None else part.text)
        sure = answer.confidence is None or answer.confidence >= self.min_confidence
        if answer.text.strip() and sure:
            return self._traced(part, self.part.name, {"asked": True, "answer": answer.text})
        return self._traced(full, self.full.name, {"asked": True})

    def _traced(self, choice: Choice, name: str, trace: dict[str, Any]) -> Choice:
        return Choice(choice.order, choice.value, {**choice.trace, "routed": name, **trace}, choice.text)
