"""LangChain: a document compressor that chooses and orders documents under a token budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from corag.optional import needed

with needed("langchain_core", "langchain"):
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.prompts import PromptTemplate, format_document

    from corag.integrations.choosing import KEY, Chooser


class CoragCompressor(Chooser, BaseDocumentCompressor):
    """Chooses which documents go into the prompt, how many, and in which order, under a token budget.

    The budget is that of the context that `create_stuff_documents_chain` builds: each document by `document_prompt`,
    a template, with `separator` between them. Give the chain's own if it has others than LangChain's defaults.

    See `corag.integrations.choosing.Chooser` for what comes back, and the other settings.
    """

    document_prompt: str = "{page_content}"
    separator: str = "\n\n"

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Return the documents for a prompt, in its order; see `Chooser.choose`."""
        return self.choose(query, documents)[0]

    def _write(self, document: Document | None, text: str, note: Mapping[str, Any]) -> Document:
        made = document or Document(page_content=text)
        return made.model_copy(update={"page_content": text, "metadata": {**made.metadata, KEY: note}})

    def _render(self, documents: Sequence[Document]) -> str:
        prompt = PromptTemplate.from_template(self.document_prompt)
        return self.separator.join(format_document(document, prompt) for document in documents)
