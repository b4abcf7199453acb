"""The compressor before LangChain's own chain; the page on frameworks has it in a retriever."""

import json

import pytest
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.documents import Document
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableLambda

from corag.integrations.choosing import KEY
from corag.integrations.langchain import CoragCompressor
from tests.corag.integrations.worlds import FACTS, QUESTION, check_kept, context, tokens

pytestmark = pytest.mark.slow

PROMPT = PromptTemplate.from_template("BEGIN\n{context}\nEND {input}")
REPEATS = RunnableLambda(lambda prompt: prompt.to_string())


def documents(texts=FACTS, **metadata):
    return [Document(page_content=text, metadata=dict(metadata), id=f"d{n}") for n, text in enumerate(texts)]


def top(budget_tokens=60, **given):
    return CoragCompressor(budget_tokens, method="top-k", k=50, **given)


def test_documents_given_are_not_changed_and_metadata_survives():
    given = documents(page=7, source="a.pdf")
    check_kept(given, lambda found: top().compress_documents(found, QUESTION), lambda one: one.metadata)


def test_the_chains_own_template_and_separator_are_counted():
    shown, between = "<source name={source}>\n{page_content}\n</source>", "\n=====\n"
    prompt = PromptTemplate.from_template(shown)
    compressor = top(90, document_prompt=shown, separator=between)
    chosen = compressor.compress_documents(documents(source="a/b/c.txt"), QUESTION)
    chain = create_stuff_documents_chain(REPEATS, PROMPT, document_prompt=prompt, document_separator=between)
    cost = tokens(context(chain.invoke({"input": QUESTION, "context": chosen})))
    assert cost == chosen[0].metadata[KEY]["selection"]["cost_tokens"] <= 90
    assert json.loads(compressor.model_dump_json())["document_prompt"] == shown
