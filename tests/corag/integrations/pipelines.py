"""A pipeline of each framework over real questions: its own vector store, and the offline reader as language model.

    python -m tests.corag.integrations.pipelines FOLDER [QUESTIONS [POOL [NAMES]]]

prints the table of docs/frameworks.md: the passages offered to the first POOL questions of the split `dev` are
searched for the first QUESTIONS of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

import corag
from corag.models.cached import CachedEmbedder
from corag.text.data import DataFolder, Query
from corag.text.support import supporting_spans
from experiments.evaluation.metrics import f1

Asks = Callable[[str, int, Any], str]
"""Takes a question, how many documents to find, and CORAG's part or None; returns the prompt."""

BUDGET = 256
BEGIN, END = "Context:\n", "\nQuestion: "


def llama_index(passages: Sequence[corag.Chunk], embedder: CachedEmbedder) -> Asks:
    from llama_index.core import PromptTemplate, VectorStoreIndex
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.schema import TextNode

    from tests.corag.integrations.test_llama_index import Repeats

    class Embeds(BaseEmbedding):
        def _get_text_embedding(self, text):
            return embedder.vectors([text])[0].tolist()

        _get_query_embedding = _get_text_embedding

        async def _aget_query_embedding(self, query):
            return self._get_query_embedding(query)

    vectors = embedder.vectors([one.text for one in passages])
    nodes = [
        TextNode(text=body(one), metadata={"title": one.metadata["title"]}, id_=one.id, embedding=vector.tolist())
        for one, vector in zip(passages, vectors, strict=True)
    ]
    index = VectorStoreIndex(nodes, embed_model=Embeds())
    template = PromptTemplate(f"{BEGIN}{{context_str}}{END}{{query_str}}")

    def ask(question, k, part):
        parts = [] if part is None else [part]
        engine = index.as_query_engine(
            llm=Repeats(), similarity_top_k=k, node_postprocessors=parts, text_qa_template=template
        )
        return str(engine.query(question))

    return ask


def langchain(passages: Sequence[corag.Chunk], embedder: CachedEmbedder) -> Asks:
    from langchain_classic.chains import create_retrieval_chain
    from langchain_classic.chains.combine_documents import create_stuff_documents_chain
    from langchain_classic.retrievers import ContextualCompressionRetriever
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.prompts import PromptTemplate
    from langchain_core.runnables import RunnableLambda
    from langchain_core.vectorstores import InMemoryVectorStore

    class Embeds(Embeddings):
        def embed_documents(self, texts):
            return embedder.vectors(texts).tolist()

        def embed_query(self, text):
            return self.embed_documents([text])[0]

    store = InMemoryVectorStore(Embeds())
    store.add_documents(
        [Document(page_content=one.text, metadata={"title": one.metadata["title"]}, id=one.id) for one in passages]
    )
    template = PromptTemplate.from_template(f"{BEGIN}{{context}}{END}{{input}}")
    repeats = RunnableLambda(lambda prompt: prompt.to_string())

    def ask(question, k, part):
        found = store.as_retriever(search_kwargs={"k": k})
        if part is not None:
            found = ContextualCompressionRetriever(base_compressor=part, base_retriever=found)
        chain = create_retrieval_chain(found, create_stuff_documents_chain(repeats, template))
        return chain.invoke({"input": question})["answer"]

    return ask


HAYSTACK_LOOP = "{% for doc in documents %}\n{{ doc.meta.title }}\n{{ doc.content }}\n{% endfor %}"


def haystack(passages: Sequence[corag.Chunk], embedder: CachedEmbedder) -> Asks:
    from haystack import Document, Pipeline
    from haystack.components.builders import PromptBuilder
    from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    vectors = embedder.vectors([one.text for one in passages])
    store.write_documents(
        [
            Document(id=one.id, content=body(one), meta={"title": one.metadata["title"]}, embedding=vector.tolist())
            for one, vector in zip(passages, vectors, strict=True)
        ]
    )

    @cache
    def pipeline(k, part):
        made = Pipeline()
        made.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=k))
        made.add_component(
            "builder", PromptBuilder(f"{BEGIN}{HAYSTACK_LOOP}{END}{{{{ query }}}}", required_variables="*")
        )
        last = "retriever"
        if part is not None:
            made.add_component("selector", part)
            made.connect("retriever.documents", "selector.documents")
            last = "selector"
        made.connect(f"{last}.documents", "builder.documents")
        return made

    def ask(question, k, part):
        given: dict[str, Any] = {name: {"query": question} for name in ("builder", "selector")[: 2 if part else 1]}
        given["retriever"] = {"query_embedding": embedder.vectors([question])[0].tolist()}
        return pipeline(k, part).run(given)["builder"]["prompt"]

    return ask


PIPELINES: Mapping[str, Callable[[Sequence[corag.Chunk], CachedEmbedder], Asks]] = {
    "LlamaIndex": llama_index, "LangChain": langchain, "Haystack": haystack,
}  # fmt: skip
TOP_K = {"LlamaIndex": 2, "LangChain": 4, "Haystack": 10}
"""How many documents each takes by default."""


def part_of(name: str, **settings: Any) -> Any:
    """Return CORAG's part for a framework, which counts what the pipelines above show."""
    if name == "LlamaIndex":
        from corag.integrations.llama_index import CoragPostprocessor

        return CoragPostprocessor(**settings)
    if name == "LangChain":
        from corag.integrations.langchain import CoragCompressor

        return CoragCompressor(**settings)
    from corag.integrations.haystack import CoragSelector

    return CoragSelector(template=HAYSTACK_LOOP, **settings)


def body(chunk: corag.Chunk) -> str:
    return chunk.text.removeprefix(f"{chunk.metadata['title']}\n")


def passages_of(folder: DataFolder, queries: Sequence[Query]) -> list[corag.Chunk]:
    """Return the passages that are offered to some questions, each once."""
    from corag.text.documents import passage

    names = dict.fromkeys(name for query in queries for name in query.candidates or ())
    return [passage(folder.documents[name]) for name in names]


def figures(folder: DataFolder, query: Query, prompt: str, reader: corag.Reader | None = None) -> tuple[float, ...]:
    """Return tokens of the context, the share of the supporting sentences in it, and the F1 of the answer."""
    context = prompt.partition(BEGIN)[2].rpartition(END)[0]
    marked = supporting_spans(query, folder.documents)
    held = [folder.documents[one.document].text[one.start : one.end].strip() in context for one in marked]
    answer = "" if reader is None else reader.answer(query.question, context).text
    tokens = int(corag.tokens().count([context])[0])
    return tokens, float(np.mean(held)) if held else 0.0, f1(answer, query.answers)


def main(path: str, num_questions: str = "20", pool: str = "60", names: str = ",".join(PIPELINES)) -> None:
    folder = DataFolder.open(path)
    queries = folder.split("dev", int(pool))
    passages = passages_of(folder, queries)
    embedder, reader = CachedEmbedder("minilm"), corag.reader("minilm-reader")
    print(f"{num_questions} questions, {len(passages)} passages")  # noqa: T201 - a program
    print("| pipeline | documents | tokens | evidence | F1 |\n| --- | --- | --- | --- | --- |")  # noqa: T201
    for name in names.split(","):
        ask = PIPELINES[name](passages, embedder)
        ways = [(f"top {TOP_K[name]}, its default", TOP_K[name], None)]
        ways.append((f"top 20, CORAG, {BUDGET} tokens", 20, part_of(name, budget_tokens=BUDGET)))
        # The three find the same passages.
        ways += [("top 20", 20, None)] if name == "LlamaIndex" else []
        for label, k, part in ways:
            rows = [
                figures(folder, query, ask(query.question, k, part), reader) for query in queries[: int(num_questions)]
            ]
            tokens, evidence, score = np.mean(rows, axis=0)
            print(f"| {name} | {label} | {tokens:.0f} | {evidence:.2f} | {score:.3f} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
