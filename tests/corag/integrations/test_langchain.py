"""The compressor and the retriever in LangChain's own retrievers and chains, with a model that repeats its prompt."""

import copy
import json

import pytest
from langchain_classic.chains import create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.documents import Document
from langchain_core.prompts import PromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda

from corag.integrations.choosing import KEY
from corag.integrations.langchain import CoragCompressor
from tests.corag.integrations.worlds import FACTS, QUESTION, context, tokens

pytestmark = pytest.mark.slow

PROMPT = PromptTemplate.from_template("BEGIN\n{context}\nEND {input}")
REPEATS = RunnableLambda(lambda prompt: prompt.to_string())


class Finds(BaseRetriever):
    """Finds the same documents for every question."""

    documents: list[Document]

    def _get_relevant_documents(self, query, *, run_manager):
        return self.documents


def documents(texts=FACTS, **metadata):
    return [Document(page_content=text, metadata=dict(metadata), id=f"d{n}") for n, text in enumerate(texts)]


def top(budget_tokens=60, **given):
    return CoragCompressor(budget_tokens, method="top-k", k=50, **given)


def compressing(compressor, found):
    return ContextualCompressionRetriever(base_compressor=compressor, base_retriever=Finds(documents=found))


def chain(retriever, **given):
    return create_retrieval_chain(retriever, create_stuff_documents_chain(REPEATS, PROMPT, **given))


def test_documents_given_are_not_changed_and_metadata_survives():
    before = documents(page=7, source="a.pdf")
    kept = copy.deepcopy(before)
    after = top().compress_documents(before, QUESTION)
    assert before == kept
    for place, one in enumerate(after):
        note = one.metadata.pop(KEY)
        assert note["place"] == place and json.loads(json.dumps(note)) == note and one == before[place]


def test_the_chains_own_template_and_separator_are_counted():
    shown, between = "<source name={source}>\n{page_content}\n</source>", "\n=====\n"
    prompt = PromptTemplate.from_template(shown)
    compressor = top(90, document_prompt=shown, separator=between)
    answer = chain(
        compressing(compressor, documents(source="a/b/c.txt")), document_prompt=prompt, document_separator=between
    ).invoke({"input": QUESTION})
    cost = tokens(context(answer["answer"]))
    assert cost == answer["context"][0].metadata[KEY]["selection"]["cost_tokens"] <= 90
    assert json.loads(compressor.model_dump_json())["document_prompt"] == shown
