"""`self-route`: a selector around two others that asks the reader which one to use."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from common.checks import check_range
from corag.errors import InputError
from corag.registry import READERS, SELECTORS
from corag.selectors.base import BudgetedSelector, Choice, checked
from corag.selectors.problem import SelectionProblem
from corag.types import Reader, Selection

GIVEN = ("unit", "max_units", "order")
"""Settings that the two selectors have, too."""


@dataclass(kw_only=True, eq=False)
class SelfRoute(BudgetedSelector):
    """Asks the reader once with a small selection; if it cannot answer, takes a large one.

    After Li, Li, Zhang, Mei and Bendersky, "Retrieval augmented generation or long-context LLMs? A comprehensive study
    and hybrid approach" (2024), section 5. The reader's answer is in the trace (`routed`, `answer`), so that nobody has
    to ask again.

    Args:
        part: Selector of the small selection, by name or as a `BudgetedSelector`; by default `top-k` with the paper's k
            of 5. Named ones have the unit, `max_units` and order of this one, unless they have their own.
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
        given = {name: value for name, value in self._arguments[1].items() if name in GIVEN}
        self.part = self._part = built(self.part, {"tokenizer": self.tokenizer, **given})
        self.full = self._full = built(self.full, {"tokenizer": self.tokenizer, **given})
        self.reader = self._reader = READERS.make(self.reader)

    @property
    def compares(self) -> bool:
        """Whether one of the two compares similarities."""
        return self._part.compares or self._full.compares

    def prepared(self, passages: SelectionProblem) -> SelectionProblem:
        """Return the candidates as they are: each of the two selectors prepares what it chooses from."""
        return passages

    def _choose_many(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        """Return nothing: `select_from` asks the two selectors."""
        return [Choice(())] * len(problems)

    def select_from(self, problem: SelectionProblem, choice: Choice | None = None) -> Selection:
        """Return the selection of one of the two; the trace says of which."""
        started = time.perf_counter()
        selector, selection, details = self._routed(problem)
        details = {**selection.trace.details, "routed": selector.name, **details}
        trace = replace(selection.trace, details=details, select_s=time.perf_counter() - started)
        return replace(selection, method=self.name, trace=trace)

    def _routed(self, problem: SelectionProblem) -> tuple[BudgetedSelector, Selection, dict[str, Any]]:
        part, full = (of.select_from(of.prepared(problem)) for of in (self._part, self._full))
        is_text = [len(one.spans) == len(one.chunks) for one in (part, full)]  # and no summaries
        if all(is_text) and set(full.ids) <= set(part.ids):
            # There is nothing more to read, whatever the reader says.
            return self._part, part, {"asked": False}
        if not part.chunks:
            return self._full, full, {"asked": False}
        answer = self._reader.answer(problem.query, part.text)
        sure = answer.confidence is None or answer.confidence >= self.min_confidence
        if answer.text.strip() and sure:
            return self._part, part, {"asked": True, "answer": answer.text}
        return self._full, full, {"asked": True}


def built(selector: str | BudgetedSelector, defaults: Mapping[str, Any], **settings: Any) -> BudgetedSelector:
    """Return a selector given by name or as an object, which takes no more settings."""
    made = SELECTORS.make(selector, defaults=defaults, **settings)
    if not isinstance(made, BudgetedSelector):
        raise InputError(f"selector {made.name!r} is no BudgetedSelector; derive it from that class to wrap it")
    return made
