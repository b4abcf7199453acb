"""Documents and questions for the adapters of frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import corag
from corag.integrations.choosing import KEY, DocumentLayout, Given
from corag.selectors.base import BudgetedSelector, Choice
from corag.text.tokens import CallableCounter

RIVERS = ("Aue", "Bode", "Cher", "Dill", "Ems")
FACTS = [f"The river {name} is long. It flows north. {name} has {n} bridges." for n, name in enumerate(RIVERS)]

QUESTION = "How many bridges has the Cher?"

MINILM = corag.tokens()
CHARACTERS = CallableCounter(len, name="characters")


def tokens(text: str, counter=MINILM) -> int:
    return int(counter.count([text])[0])


@dataclass(frozen=True)
class Note:
    """A document of a framework that does not exist."""

    text: str
    id: str = ""
    title: str = ""
    score: float | None = None
    meta: dict[str, Any] = field(default_factory=dict)


class Notes(DocumentLayout):
    """Shows notes with what a template puts around them."""

    def __init__(self, separator: str = "\n\n", template: str = "{title}{text}", noted: bool = True) -> None:
        self.separator, self.template, self.noted = separator, template, noted

    def read(self, document: Note) -> Given:
        return Given(document.id, document.text, document.title, document.score)

    def write(self, document: Note | None, text: str | None, note: Mapping[str, Any] | None) -> Note:
        made = document or Note("")
        meta = {**made.meta, KEY: note} if note is not None and self.noted else made.meta
        return replace(made, text=made.text if text is None else text, meta=meta)

    def render(self, documents: Sequence[Note]) -> str:
        return self.separator.join(self.template.format(title=one.title, text=one.text) for one in documents)


class Unregistered:
    """A reranker that no name builds."""

    name = "unregistered"

    def score(self, query, texts):
        raise NotImplementedError

    def scorer(self, query, chunks):
        raise NotImplementedError


class Writes(BudgetedSelector):
    """Writes the same text whatever it is asked."""

    name = "writes"
    text = "All rivers are long."

    def _choose(self, problem):
        fits = tokens(self.text) <= problem.budget_tokens
        return Choice((0, 1), 0.5, {}, self.text) if fits else Choice(())
