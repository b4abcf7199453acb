"""LangChain: a document compressor that chooses and orders documents under a token budget.

from corag.integrations.langchain import CoragCompressor

retriever = ContextualCompressionRetriever(
    base_compressor=CoragCompressor(budget_tokens=1024, tokenizer="gpt-4o"), base_retriever=retriever
)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from corag.errors import InputError
from corag.integrations.choosing import KEY, DocumentLayout, Given
from corag.optional import needed

with needed("langchain_core", "langchain"):
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.prompts import BasePromptTemplate, PromptTemplate, format_document
    from pydantic import ConfigDict, field_serializer

    from corag.integrations.model import ChoosingModel


class CoragCompressor(ChoosingModel, BaseDocumentCompressor):
    """Chooses which documents go into the prompt, how many, and in which order, under a token budget.

    The budget is that of the context that `create_stuff_documents_chain` builds: each document by `document_prompt`,
    with `separator` between them. Give the chain's own if it has others than LangChain's defaults.

    If the selector chooses sentences, as `corag` does for questions about facts, a document comes back with these
    alone; `unit="passage"` keeps documents whole. Documents given are never changed.

    Args:
        document_prompt: How the prompt shows a document, as a text or a prompt template.
        title_key: The metadata that the reranker reads before the text, if a document has it.
        score_key: The metadata that is a document's score, if it has one.

    See `ChoosingModel` for the other settings.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    document_prompt: str | BasePromptTemplate = "{page_content}"
    title_key: str = "title"
    score_key: str = "relevance_score"

    @field_serializer("document_prompt")
    def _as_text(self, prompt: Any) -> str:
        if isinstance(prompt, str):
            return prompt
        if not isinstance(prompt, PromptTemplate) or prompt.template_format != "f-string":
            raise InputError(
                f"document_prompt: expected a text, got a {type(prompt).__name__}, which is not serialized"
            )
        return str(prompt.template)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Return the documents for a prompt, in its order; see `Chooser.choose`."""
        return self._choose(query, list(documents), _Documents(self))


class _Documents(DocumentLayout[Document]):
    """Documents as chains show them."""

    def __init__(self, settings: CoragCompressor) -> None:
        self._settings, prompt = settings, settings.document_prompt
        self._prompt = PromptTemplate.from_template(prompt) if isinstance(prompt, str) else prompt

    def read(self, document: Document) -> Given:
        score = document.metadata.get(self._settings.score_key)
        title = document.metadata.get(self._settings.title_key)
        number = score if isinstance(score, int | float) or hasattr(score, "__float__") else None
        return Given(document.id or "", document.page_content, str(title or "").strip(), number)

    def write(self, document: Document | None, text: str | None, note: Mapping[str, Any] | None) -> Document:
        noted = {KEY: note} if note is not None and self._settings.trace else {}
        if document is None:
            return Document(page_content=text or "", metadata=noted)
        content = document.page_content if text is None else text
        return document.model_copy(update={"page_content": content, "metadata": {**document.metadata, **noted}})

    def render(self, documents: Sequence[Document]) -> str:
        return self.separator.join(format_document(document, self._prompt) for document in documents)
