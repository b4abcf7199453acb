"""LangChain: a document compressor that chooses and orders documents under a token budget, and a retriever.

from corag.integrations.langchain import CoragCompressor

retriever = ContextualCompressionRetriever(
    base_compressor=CoragCompressor(budget_tokens=1024, tokenizer="gpt-4o"), base_retriever=retriever
)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from corag.checks import check_count, check_query
from corag.errors import IndexMismatchError, InputError
from corag.index import ChunkIndex, Retrieval
from corag.integrations.choosing import KEY, Chosen, Given
from corag.models.vectors import vectors_by
from corag.optional import needed
from corag.registry import EMBEDDERS, trusted
from corag.registry import embedder as make_embedder
from corag.types import Candidate, Embedder

with needed("langchain_core", "langchain"):
    from langchain_core.callbacks import CallbackManagerForRetrieverRun, Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.prompts import BasePromptTemplate, PromptTemplate, format_document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import ConfigDict, PrivateAttr, field_serializer

    from corag.integrations.model import ChoosingModel

SHOWN = "{page_content}"


class _DocumentsModel(ChoosingModel):
    """Chooses LangChain's documents."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    document_prompt: str | BasePromptTemplate = SHOWN
    title_key: str = "title"
    score_key: str = "relevance_score"

    @field_serializer("document_prompt")
    def _as_text(self, prompt: Any) -> str:
        plain = isinstance(prompt, PromptTemplate) and prompt.template_format == "f-string"
        if not isinstance(prompt, str) and not plain:
            raise InputError(f"document_prompt is a {type(prompt).__name__}, which is no text; give one as a text")
        return prompt if isinstance(prompt, str) else str(prompt.template)

    @property
    def _documents(self) -> _Documents:
        prompt = self.document_prompt
        made = PromptTemplate.from_template(prompt) if isinstance(prompt, str) else prompt
        return _Documents(self.separator, made, self.title_key, self.score_key, self.trace)


class CoragCompressor(_DocumentsModel, BaseDocumentCompressor):
    """Chooses which documents go into the prompt, how many, and in which order, under a token budget.

    The budget is that of the context that `create_stuff_documents_chain` builds: each document by `document_prompt`,
    with `separator` between them. Give the chain's own if it has others than LangChain's defaults.

    Where the selector chooses sentences, as `corag` does for questions about facts, a document comes back with these
    alone; `unit="passage"` keeps documents whole. Documents given are never changed.

    Args:
        document_prompt: How the prompt shows a document, as a text or a prompt template.
        title_key: The metadata that the reranker reads before the text, where a document has it.
        score_key: The metadata that holds a document's score, where it has one.

    See `ChoosingModel` for the other settings.
    """

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Return the documents for a prompt, in its order; see `Chooser.choose`."""
        return self._choose(query, list(documents), self._documents).documents


class CoragRetriever(_DocumentsModel, BaseRetriever):
    """Finds chunks in an index of this project and chooses documents for a prompt among them.

    Args:
        index: A `ChunkIndex`, or where it lies.
        num_candidates: How many chunks are offered to the selector.
        retrieval: How the index finds them; see `ChunkIndex.retrieve`. By default `hybrid`.
        where: Only chunks with this metadata; see `ChunkIndex.retrieve`.
        embedder: Embeds the question: name or object; by default the index's own.

    See `CoragCompressor` and `ChoosingModel` for the other settings.
    """

    index: Any
    num_candidates: int = 20
    retrieval: Retrieval | None = None
    where: dict[str, Any] | None = None
    embedder: Any = None
    _opened: tuple[ChunkIndex, Embedder] | None = PrivateAttr(default=None)

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        candidates, embedder = self._candidates(query)
        offered = [
            Document(page_content=one.chunk.text, metadata=dict(one.chunk.metadata), id=one.chunk.id)
            for one in candidates
        ]
        scores = {one.chunk.id: one.similarity for one in candidates}
        adapter = _Documents(self.separator, self._documents.prompt, "title", "", self.trace, scores, embedder.name)
        chosen: Chosen[Document] = self._choose(query, offered, adapter, score_kind="cosine")
        return chosen.documents

    def _candidates(self, query: str) -> tuple[list[Candidate], Embedder]:
        """Return candidates from the index, best first, and what embedded the question; the first call opens both."""
        check_query(query)
        check_count("num_candidates", self.num_candidates, "10 to 50 are usual")
        if self._opened is None:
            index = self.index if isinstance(self.index, ChunkIndex) else ChunkIndex.open(self.index)
            named = self.embedder
            if named is None:
                named = trusted(EMBEDDERS, index.embedder_name, f"the index at {index.uri}")
            embedder = make_embedder(named)
            if embedder.name != index.embedder_name:
                raise IndexMismatchError(
                    f"the index at {index.uri} was made by embedder {index.embedder_name!r}, not by "
                    f"{embedder.name!r}; use that embedder"
                )
            self._opened = index, embedder
        index, embedder = self._opened
        retrieval = self.retrieval or "hybrid"
        vector = vectors_by(embedder, [query])[0]
        return index.retrieve(query, vector, self.num_candidates, retrieval, self.where), embedder


class _Documents:
    """Documents as chains show them."""

    def __init__(
        self,
        separator: str,
        prompt: Any,
        title_key: str,
        score_key: str,
        noted: bool,
        scores: Mapping[str, float | None] | None = None,
        embedder: str | None = None,
    ) -> None:
        self.separator, self.prompt, self._noted = separator, prompt, noted
        self._title_key, self._score_key, self._scores, self._embedder = title_key, score_key, scores, embedder

    def read(self, document: Document) -> Given:
        score = document.metadata.get(self._score_key)
        if self._scores is not None:
            score = self._scores[str(document.id)]
        title = document.metadata.get(self._title_key)
        number = score if isinstance(score, int | float) or hasattr(score, "__float__") else None
        return Given(document.id or "", document.page_content, str(title or "").strip(), number, self._embedder)

    def write(self, document: Document | None, text: str | None, note: Mapping[str, Any] | None) -> Document:
        noted = {KEY: note} if note is not None and self._noted else {}
        if document is None:
            return Document(page_content=text or "", metadata=noted)
        content = document.page_content if text is None else text
        return document.model_copy(update={"page_content": content, "metadata": {**document.metadata, **noted}})

    def render(self, documents: Sequence[Document]) -> str:
        return self.separator.join(format_document(one, self.prompt) for one in documents)
