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
from corag.integrations.choosing import KEY, Chooser, DocumentLayout, DocumentOrder, Given, Tokenizer, check_options
from corag.naming import Spelling
from corag.optional import needed
from corag.types import Selector, SimilarityKind

with needed("haystack", "haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.components.builders import PromptBuilder

LOOP = "{% for doc in documents %}\n{{ doc.content }}\n{% endfor %}"
"""The loop over documents of the prompts in Haystack's documentation."""


@component
class CoragSelector:
    """Chooses which documents go into the prompt, how many, and in which order, under a token budget.

    The budget is that of the part of the prompt that shows the documents: what `template`, the loop over `documents`
    in the template of your `PromptBuilder`, renders. Give that loop as it is there.

    If the selector chooses sentences, as `corag` does for questions about facts, a document comes back with these
    alone; `unit="passage"` keeps documents whole. Documents given are never changed; those without text are left out.

    Args:
        budget_tokens: The most tokens of the rendered documents.
        tokenizer: Counts tokens as the answering model does: name or object, such as `gpt-4o`.
        selector: Chooses: name or object; see `corag.selector`.
        template: The loop over `documents`.
        order: The order that the selector chose (`selected`), or that in which the documents came (`given`).
        score_kind: What the documents' scores are: `cosine`, `score` on another scale, or `rank`, which looks at
            their order alone.
        meta_fields_to_embed: The metadata that the reranker reads before the text, if a document has it.
        trace: Whether the metadata of each document says, under `corag`, how it was chosen.
        settings: Settings of the selector, which may also be given beside these, by keyword.

    Raises:
        InputError: A setting is wrong, or the template shows no documents.
    """

    def __init__(
        self,
        budget_tokens: int = 1024,
        tokenizer: Tokenizer = None,
        selector: Spelling | Selector = "corag",
        template: str = LOOP,
        order: DocumentOrder = "selected",
        score_kind: SimilarityKind = "score",
        meta_fields_to_embed: Sequence[str] = ("title",),
        trace: bool = True,
        settings: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        check_options(budget_tokens, order, score_kind)
        self.budget_tokens, self.order, self.score_kind, self.trace = budget_tokens, order, score_kind, trace
        self.template, self.meta_fields_to_embed = template, list(meta_fields_to_embed)
        self._chooser = Chooser(selector, tokenizer, {**(settings or {}), **others})
        self._builder = PromptBuilder(template, required_variables="*")
        if self._builder.variables != ["documents"]:
            raise InputError(
                f"template is {template!r:.200}, which uses {', '.join(sorted(self._builder.variables)) or 'nothing'}; "
                "give the loop over documents alone, {% for doc in documents %} ... {% endfor %}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the component as Haystack writes it into a pipeline's file; parts are there by name."""
        data: dict[str, Any] = default_to_dict(
            self,
            budget_tokens=self.budget_tokens,
            template=self.template,
            order=self.order,
            score_kind=self.score_kind,
            meta_fields_to_embed=self.meta_fields_to_embed,
            trace=self.trace,
            **self._chooser.to_dict(),
        )
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CoragSelector:
        """Return the component that `to_dict` described."""
        made: CoragSelector = default_from_dict(cls, data)
        return made

    def warm_up(self) -> None:
        """Load the models; else the first `run` does."""
        _ = self._chooser.built

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
        budget = self.budget_tokens if budget_tokens is None else budget_tokens
        chosen, selection = self._chooser.choose(query, documents, _PromptDocuments(self), budget, self.score_kind)
        return {"documents": chosen, "selection": selection}


class _PromptDocuments(DocumentLayout[Document]):
    """Documents as a prompt builder shows them."""

    separator = ""

    def __init__(self, settings: CoragSelector) -> None:
        self.order, self._settings = settings.order, settings

    def read(self, document: Document) -> Given:
        title = "\n".join(
            str(document.meta[name]) for name in self._settings.meta_fields_to_embed if document.meta.get(name)
        )
        return Given(document.id, document.content or "", title.strip(), document.score)

    def write(self, document: Document | None, text: str | None, note: Mapping[str, Any] | None) -> Document:
        noted = {KEY: note} if note is not None and self._settings.trace else {}
        if document is None:
            return Document(content=text or "", meta=noted)
        content = document.content if text is None else text
        return replace(document, content=content, meta={**document.meta, **noted})

    def render(self, documents: Sequence[Document]) -> str:
        return str(self._settings._builder.run(documents=list(documents))["prompt"])
