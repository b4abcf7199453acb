"""The compressor and the retriever in LangChain's own retrievers and chains, with a model that repeats its prompt."""

import asyncio
import copy
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_classic.chains import create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tracers import BaseTracer

import corag
from corag.errors import IndexMismatchError, InputError
from corag.index import ChunkIndex
from corag.integrations.choosing import KEY
from corag.integrations.langchain import CoragCompressor, CoragRetriever
from tests.corag.integrations.worlds import FACTS, QUESTION, Unregistered, Writes, error_line, tokens
from tests.corag.worlds import TEXTS, HashReranker

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
    return CoragCompressor(budget_tokens, selector="top-k", k=50, **given)


def compressing(compressor, found):
    return ContextualCompressionRetriever(base_compressor=compressor, base_retriever=Finds(documents=found))


def chain(retriever, **given):
    return create_retrieval_chain(retriever, create_stuff_documents_chain(REPEATS, PROMPT, **given))


def context(answer):
    """The context that the chain put into its prompt."""
    return answer.partition("BEGIN\n")[2].rpartition("\nEND")[0]


def test_nothing_to_choose_from():
    assert top().compress_documents([], QUESTION) == []
    assert top().compress_documents(documents([" ", ""]), QUESTION) == []
    assert compressing(top(), []).invoke(QUESTION) == []
    [one] = compressing(top(), documents(FACTS[:1])).invoke(QUESTION)
    assert one.page_content == FACTS[0] and one.id == "d0"
    assert isinstance(top(), BaseDocumentCompressor)


def test_a_budget_smaller_than_any_document():
    assert compressing(top(3), documents()).invoke(QUESTION) == []


def test_documents_given_are_not_changed_and_metadata_survives():
    before = documents(page=7, source="a.pdf")
    kept = copy.deepcopy(before)
    after = top().compress_documents(before, QUESTION)
    assert before == kept
    for place, one in enumerate(after):
        note = one.metadata.pop(KEY)
        assert note["place"] == place and json.loads(json.dumps(note)) == note and one == before[place]
    assert KEY not in top(trace=False).compress_documents(before, QUESTION)[0].metadata


@pytest.mark.parametrize("scores", [[0.9, 0.5, 0.1], [31.0, -7, 400], [0.4, None, 0.2], [float("nan")] * 3, ["x"] * 3])
def test_scores_in_the_metadata_are_used_where_all_are_numbers(scores):
    before = documents(FACTS[:3])
    for one, score in zip(before, scores, strict=True):
        one.metadata["relevance_score"] = score
    after = top(500).compress_documents(before, QUESTION)
    numbers = all(isinstance(score, int | float) and score == score for score in scores)
    seen = after[0].metadata[KEY]["selection"]["trace"]["chunk_similarities"]
    assert seen == ([float(score) for score in scores] if numbers else [None] * 3)
    assert [one.page_content for one in after] == FACTS[:3]


def test_documents_without_ids_and_repeated_ones():
    plain = [Document(page_content=text) for text in (*FACTS, *FACTS)]
    assert [one.page_content for one in top(500).compress_documents(plain, QUESTION)] == FACTS


def test_sentences_come_back_in_the_document_that_they_are_from():
    compressor = CoragCompressor(9, reranker="bm25", unit="sentence", agent="none")
    [one, *_] = compressor.compress_documents(documents(), QUESTION)
    assert one.page_content == "Cher has 2 bridges." and one.id == "d2"
    [[start, end]] = one.metadata[KEY]["spans"]
    assert FACTS[2][start:end] == one.page_content


def test_the_reranker_reads_the_title_first():
    reranker = HashReranker()
    CoragCompressor(200, reranker=reranker, policy="greedy").compress_documents(documents(title="Rivers"), QUESTION)
    assert f"Rivers\n{FACTS[0]}" in reranker.asked
    CoragCompressor(200, reranker=reranker, policy="greedy", title_key="").compress_documents(
        documents(title="Rivers"), QUESTION
    )
    assert FACTS[0] in reranker.asked


def test_a_summary_is_a_document_of_its_own():
    [one] = CoragCompressor(60, selector=Writes()).compress_documents(documents(), QUESTION)
    assert one.page_content == Writes.text and one.metadata[KEY]["sources"] == ["d0", "d1"]


@settings(max_examples=25)
@given(texts=st.lists(TEXTS, max_size=5), budget=st.integers(1, 90), title=TEXTS)
def test_the_context_of_a_chain_keeps_the_budget(texts, budget, title):
    compressor = CoragCompressor(budget, reranker=HashReranker(), policy="greedy", unit="sentence")
    answer = chain(compressing(compressor, documents(texts, title=title))).invoke({"input": QUESTION})
    assert tokens(context(answer["answer"])) <= budget


@pytest.mark.parametrize("as_text", [True, False])
def test_the_chains_own_template_and_separator_are_counted(as_text):
    shown, between = "<source name={source}>\n{page_content}\n</source>", "\n=====\n"
    prompt = PromptTemplate.from_template(shown)
    compressor = top(90, document_prompt=shown if as_text else prompt, separator=between)
    answer = chain(
        compressing(compressor, documents(source="a/b/c.txt")), document_prompt=prompt, document_separator=between
    ).invoke({"input": QUESTION})
    cost = tokens(context(answer["answer"]))
    assert cost == answer["context"][0].metadata[KEY]["selection"]["cost_tokens"] <= 90
    # One document more would not have fitted.
    more = documents(source="a/b/c.txt")[: len(answer["context"]) + 1]
    assert tokens(between.join(shown.format(source="a/b/c.txt", page_content=one.page_content) for one in more)) > 90
    assert json.loads(compressor.model_dump_json())["document_prompt"] == shown


def test_chains_answer_in_threads_in_batches_and_as_streams():
    made = chain(compressing(top(40), documents()))
    expected = made.invoke({"input": QUESTION})["answer"]
    assert asyncio.run(made.ainvoke({"input": QUESTION}))["answer"] == expected
    assert [one["answer"] for one in made.batch([{"input": QUESTION}] * 4)] == [expected] * 4
    model = FakeListChatModel(responses=["The Cher has two."])
    prompt = ChatPromptTemplate.from_messages([("system", "{context}"), ("human", "{input}")])
    streamed = create_retrieval_chain(
        compressing(top(40), documents()), create_stuff_documents_chain(model, prompt)
    ).stream({"input": QUESTION})
    assert [one["answer"] for one in streamed if "answer" in one] == list("The Cher has two.")


def test_it_stands_in_a_pipeline_of_compressors_and_alone_as_a_runnable():
    both = DocumentCompressorPipeline(transformers=[top(500), top(40)])
    assert len(compressing(both, documents()).invoke(QUESTION)) == 2
    alone = Finds(documents=documents()) | RunnableLambda(lambda found: top(40).compress_documents(found, QUESTION))
    assert len(alone.invoke(QUESTION)) == 2


def test_tracers_see_the_run_of_parts_that_no_name_builds():
    runs = []

    class Watches(BaseTracer):
        def _persist_run(self, run):
            runs.append(run)

    compressor = CoragCompressor(60, reranker=HashReranker(), policy="greedy")
    found = compressing(compressor, documents()).invoke(QUESTION, config={"callbacks": [Watches()]})
    assert found and [run.error for run in runs] == [None]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"budget_tokens": -1}, "budget_tokens must be"),
        ({"selector": "tpo-k"}, "did you mean 'top-k'"),
        ({"itrations": 3}, "has no setting 'itrations'"),
        ({"score_kind": "logit"}, "score_kind is 'logit'"),
    ],
)
def test_bad_settings_have_one_clear_line(given, says):
    with pytest.raises(InputError) as caught:
        CoragCompressor(**given)
    assert says in error_line(caught.value)


def test_settings_are_kept_in_json_pickles_and_copies():
    made = top(40, tokenizer="estimate", order="given", title_key="name")
    expected = [one.page_content for one in made.compress_documents(documents(), QUESTION)]
    for again in (
        CoragCompressor(**made.model_dump()), CoragCompressor.model_validate_json(made.model_dump_json()),
        pickle.loads(pickle.dumps(made)), copy.deepcopy(made),  # noqa: S301 - its own
    ):  # fmt: skip
        assert again.model_dump() == made.model_dump()
        assert [one.page_content for one in again.compress_documents(documents(), QUESTION)] == expected
    with pytest.raises(ValueError, match="no name builds again"):
        CoragCompressor(reranker=Unregistered()).model_dump()


def test_the_retriever_finds_and_chooses_in_an_index(small_index):
    made = CoragRetriever(index=str(small_index), budget_tokens=60, reranker="bm25", unit="passage")
    index = ChunkIndex.open(small_index)
    question = next(index.chunks()).text.split("\n")[-1][:60]
    found = made.invoke(question)
    assert 0 < tokens("\n\n".join(one.page_content for one in found)) <= 60
    stored = {chunk.id: chunk.text for chunk in index.chunks()}
    assert all(stored[one.id] == one.page_content for one in found)
    seen = found[0].metadata[KEY]["selection"]["trace"]["chunk_similarities"]
    assert all(-1 <= one <= 1 for one in seen)
    assert [one.id for one in asyncio.run(made.ainvoke(question))] == [one.id for one in found]
    assert [[one.id for one in each] for each in made.batch([question] * 3)] == [[one.id for one in found]] * 3
    answer = chain(made).invoke({"input": question})["answer"]
    assert 0 < tokens(context(answer)) <= 60
    same = corag.ask(
        question, index, budget_tokens=60, selector="corag(reranker=bm25, unit=passage)", reader="extractive"
    )
    assert list(same.selection.ids) == [one.id for one in found]


def test_the_retriever_says_what_is_wrong_with_an_index(small_index, tmp_path):
    with pytest.raises(IndexMismatchError, match="there is no index"):
        CoragRetriever(index=str(tmp_path / "none")).invoke(QUESTION)
    with pytest.raises(InputError, match="the question is empty"):
        CoragRetriever(index=str(small_index)).invoke("")
    with pytest.raises(InputError, match="num_candidates"):
        CoragRetriever(index=str(small_index), num_candidates=0).invoke(QUESTION)
