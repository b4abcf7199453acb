"""Documents and questions for the adapters of frameworks."""

import copy
import json
from dataclasses import dataclass, field, replace
from typing import Any

import corag
from corag.integrations.choosing import KEY, Chooser
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


def check_kept(before, choose, metadata_of):
    """Choosing changes no document that is given; what it returns are these, each with a note that JSON can hold.

    The number of them is returned.
    """
    kept = copy.deepcopy(before)
    chosen = choose(before)
    assert chosen and before == kept
    for place, one in enumerate(chosen):
        note = metadata_of(one).pop(KEY)
        assert note["place"] == place and json.loads(json.dumps(note)) == note and one == kept[place]
    return len(chosen)


@dataclass(frozen=True)
class Note:
    """A document of a framework that does not exist."""

    content: str
    id: str = ""
    score: float | None = None
    meta: dict[str, Any] = field(default_factory=dict)


class Notes(Chooser):
    """Chooses notes, and shows them with what a template puts around them."""

    separator: str = "\n\n"
    template: str = "{title}{text}"

    def _write(self, document, text, note):
        made = document or Note("")
        return replace(made, content=text, meta={**made.meta, KEY: note})

    def _render(self, documents):
        shown = (self.template.format(title=one.meta.get("title", ""), text=one.content) for one in documents)
        return self.separator.join(shown)


class Writes(BudgetedSelector):
    """Writes the same text whatever it is asked."""

    name = "writes"
    text = "All rivers are long."

    def _choose(self, problem):
        fits = tokens(self.text) <= problem.budget_tokens
        return Choice((0, 1), 0.5, {}, self.text) if fits else Choice(())
