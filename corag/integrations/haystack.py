"""Haystack: a component that chooses and orders documents under a token budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from corag.errors import InputError
from corag.optional import needed

with needed("haystack", "haystack"):
    from haystack import Document, component, default_to_dict
    from haystack.components.builders import PromptBuilder

    from corag.integrations.choosing import KEY, Chooser

LOOP = "{% for doc in documents %}\n{{ doc.content }}\n{% endfor %}"
"""The loop over documents of the prompts in Haystack's documentation."""


class DocumentChooser(Chooser):
    """Chooses Haystack's documents; `template` is the loop over `documents`."""

    template: str = LOOP

    def _write(self, document: Document | None, text: str, note: Mapping[str, Any]) -> Document:
        made = document or Document(content=text)
        return replace(made, content=text, meta={**made.meta, KEY: note})

    def _render(self, documents: Sequence[Document]) -> str:
        return str(PromptBuilder(self.template, required_variables="*").run(documents=list(documents))["prompt"])


@component
class CoragSelector:
    """Chooses which documents go into the prompt, how many, and in which order, under a token budget.

    The budget is that of the part of the prompt that shows the documents: what `template`, the loop over `documents`
    in the template of your `PromptBuilder`, renders. Give that loop as it is there.

    See `corag.integrations.choosing.Chooser` for what comes back, and the other settings.

    Raises:
        InputError: A setting is wrong, or the template shows no documents.
    """

    def __init__(self, budget_tokens: int = 1024, tokenizer: Any = None, template: str = LOOP, **settings: Any) -> None:
        self._chooser = DocumentChooser(budget_tokens, tokenizer=tokenizer, template=template, **settings)
        if PromptBuilder(template).variables != ["documents"]:
            raise InputError(f"template is {template!r:.200}; give the loop over documents alone, such as {LOOP!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return the component as Haystack writes it into a pipeline's file; parts are there by name."""
        return dict(default_to_dict(self, **self._chooser.model_dump()))

    @component.output_types(documents=list[Document], selection=dict[str, Any])
    def run(self, query: str, documents: list[Document], budget_tokens: int | None = None) -> dict[str, Any]:
        """Choose documents for a prompt.

        Args:
            query: The question.
            documents: Best first; those without text are left out.
            budget_tokens: A budget for this question, in place of the component's.

        Returns:
            `documents` in the order of the prompt, and `selection`: how they were chosen, also if there are none.
        """
        chosen, selection = self._chooser.choose(query, [one for one in documents if one.content], budget_tokens)
        return {"documents": chosen, "selection": selection}
