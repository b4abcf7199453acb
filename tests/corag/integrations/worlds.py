"""Documents and questions for the adapters of frameworks."""

from dataclasses import dataclass, field, replace
from typing import Any

import corag
from corag.integrations.choosing import KEY, Given
from corag.selectors.base import BudgetedSelector, Choice

RIVERS = ("Aue", "Bode", "Cher", "Dill", "Ems")
FACTS = [f"The river {name} is long. It flows north. {name} has {n} bridges." for n, name in enumerate(RIVERS)]

QUESTION = "How many bridges has the Cher?"

MINILM = corag.tokens()


def tokens(text, counter=MINILM):
    return int(counter.count([text])[0])


def context(prompt):
    """The context that was put into a prompt, between BEGIN and END."""
    return str(prompt).partition("BEGIN\n")[2].rpartition("\nEND")[0]


@dataclass(frozen=True)
class Note:
    """A document of a framework that does not exist."""

    text: str
    id: str = ""
    title: str = ""
    score: float | None = None
    meta: dict[str, Any] = field(default_factory=dict)


class Notes:
    """Shows notes with what a template puts around them."""

    def __init__(self, separator="\n\n", template="{title}{text}"):
        self.separator, self.template = separator, template

    def read_document(self, document):
        return Given(document.id, document.text, document.title, document.score)

    def write_document(self, document, text, note):
        made = document or Note("")
        return replace(made, text=text, meta={**made.meta, KEY: note})

    def render_documents(self, documents):
        return self.separator.join(self.template.format(title=one.title, text=one.text) for one in documents)


class Writes(BudgetedSelector):
    """Writes the same text whatever it is asked."""

    name = "writes"
    text = "All rivers are long."

    def _choose(self, problem):
        fits = tokens(self.text) <= problem.budget_tokens
        return Choice((0, 1), 0.5, {}, self.text) if fits else Choice(())
