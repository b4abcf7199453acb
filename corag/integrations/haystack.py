"""Haystack: a component that chooses and orders documents under a token budget.

from corag.integrations.haystack import CoragSelector

pipeline.add_component("selector", CoragSelector(budget_tokens=1024, tokenizer="gpt-4o"))
pipeline.connect("retriever.documents", "selector.documents")
pipeline.connect("selector.documents", "prompt_builder.documents")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from corag.errors import InputError
from corag.optional import needed

with needed("haystack", "haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.components.builders import PromptBuilder

    from corag.integrations.choosing import KEY, Chooser, Given, by_name

LOOP = "{% for doc in documents %}\n{{ doc.content }}\n{% endfor %}"
"""The loop over documents of the prompts in Haystack's documentation."""


@component
class CoragSelector:
    """Chooses which documents go into the prompt, how many, and in which order, under a token budget.

    The budget is that of the part of the prompt that shows the documents: what `template`, the loop over `documents`
    in the template of your `PromptBuilder`, renders. Give that loop as it is there.

    Args:
        template: The loop over `documents`.
        meta_fields_to_embed: The metadata that the reranker reads before the text, if a document has it.

    See `corag.integrations.choosing.Chooser` for what comes back, and the other settings.

    Raises:
        InputError: A setting is wrong, or the template shows no documents.
    """

    def __init__(
        self,
        budget_tokens: int = 1024,
        tokenizer: Any = None,
        template: str = LOOP,
        meta_fields_to_embed: Sequence[str] = ("title",),
        **settings: Any,
    ) -> None:
        self._chooser = Chooser(budget_tokens, tokenizer=tokenizer, **settings)
        self.template, self.meta_fields_to_embed = template, list(meta_fields_to_embed)
        self._builder = PromptBuilder(template, required_variables="*")
        if self._builder.variables != ["documents"]:
            raise InputError(
                f"template is {template!r:.200}; give the loop over documents alone, "
                "{% for doc in documents %} ... {% endfor %}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the component as Haystack writes it into a pipeline's file; parts are there by name."""
        own = {"template": self.template, "meta_fields_to_embed": self.meta_fields_to_embed}
        shared = {name: by_name(getattr(self._chooser, name)) for name in Chooser.model_fields}
        data: dict[str, Any] = default_to_dict(self, **own, **shared)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CoragSelector:
        """Return the component that `to_dict` described."""
        made: CoragSelector = default_from_dict(cls, data)
        return made

    def warm_up(self) -> None:
        """Load the models; else the first `run` does."""
        self._chooser._parts()

    @component.output_types(documents=list[Document], selection=dict[str, Any])
    def run(self, query: str, documents: list[Document], budget_tokens: int | None = None) -> dict[str, Any]:
        """Choose documents for a prompt.

        Args:
            query: The question.
            documents: Best first.
            budget_tokens: A budget for this question, in place of the component's.

        Returns:
            `documents` in the order of the prompt, and `selection`: how they were chosen, also if there are none.
        """
        chosen, selection = self._chooser.choose(query, documents, self, budget_tokens)
        return {"documents": chosen, "selection": selection}

    def read_document(self, document: Document) -> Given:
        """Return the content of a document."""
        fields = (document.meta.get(name) for name in self.meta_fields_to_embed)
        title = "\n".join(str(field) for field in fields if field)
        return Given(document.id, document.content or "", title.strip(), document.score)

    def write_document(self, document: Document | None, text: str, note: Mapping[str, Any]) -> Document:
        """Return a document with a text and a note."""
        made = document or Document(content=text)
        return replace(made, content=text, meta={**made.meta, KEY: note})

    def render_documents(self, documents: Sequence[Document]) -> str:
        """Return documents as the prompt builder shows them."""
        return str(self._builder.run(documents=list(documents))["prompt"])
