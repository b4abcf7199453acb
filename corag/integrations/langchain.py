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
from corag.optional import needed

with needed("langchain_core", "langchain"):
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.prompts import BasePromptTemplate, PromptTemplate, format_document
    from pydantic import ConfigDict, field_serializer

    from corag.integrations.choosing import KEY, Chooser, DocumentLayout, Given


class CoragCompressor(Chooser, BaseDocumentCompressor):
    """Chooses which documents go into the prompt, how many, and in which order, under a token budget.

    The budget is that of the context that `create_stuff_documents_chain` builds: each document by `document_prompt`,
    with `separator` between them. Give the chain's own if it has others than LangChain's defaults. The reranker reads
    the `title` in a document's metadata before its text; `relevance_score` there is its score.

    Args:
        document_prompt: How the prompt shows a document, as a text or a prompt template.
        separator: The text between two documents in the prompt.

    See `corag.integrations.choosing.Chooser` for what comes back, and the other settings.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    document_prompt: str | BasePromptTemplate = "{page_content}"
    separator: str = "\n\n"

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
        return self.choose(query, documents, _Documents(self.separator, self.document_prompt))[0]


class _Documents(DocumentLayout[Document]):
    """Documents as chains show them."""

    def __init__(self, separator: str, prompt: str | BasePromptTemplate) -> None:
        super().__init__(separator)
        self._prompt = PromptTemplate.from_template(prompt) if isinstance(prompt, str) else prompt

    def read(self, document: Document) -> Given:
        score = document.metadata.get("relevance_score")
        number = score if isinstance(score, int | float) or hasattr(score, "__float__") else None
        title = str(document.metadata.get("title") or "")
        return Given(document.id or "", document.page_content, title.strip(), number)

    def write(self, document: Document | None, text: str, note: Mapping[str, Any] | None) -> Document:
        made = Document(page_content=text) if document is None else document
        metadata = made.metadata if note is None else {**made.metadata, KEY: note}
        return made.model_copy(update={"page_content": text, "metadata": metadata})

    def render(self, documents: Sequence[Document]) -> str:
        return self.separator.join(format_document(document, self._prompt) for document in documents)
