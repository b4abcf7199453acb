"""The postprocessor in LlamaIndex's query engines and synthesizers; the language model repeats its prompt."""

import copy
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import PromptTemplate, QueryBundle
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

import corag
from corag.integrations.choosing import KEY
from corag.integrations.llama_index import CoragPostprocessor
from tests.corag.integrations.worlds import FACTS, QUESTION, context, tokens
from tests.fakes import TEXTS, HashReranker

pytestmark = pytest.mark.slow

QA = PromptTemplate("BEGIN\n{context_str}\nEND {query_str}")


class Repeats(CustomLLM):
    """Answers with its prompt."""

    @property
    def metadata(self):
        return LLMMetadata(context_window=100_000, num_output=16)

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs):
        return CompletionResponse(text=prompt)

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        return (CompletionResponse(text=prompt[: end + 1], delta=letter) for end, letter in enumerate(prompt))


class Finds(BaseRetriever):
    """Finds the same nodes for every question."""

    def __init__(self, nodes):
        self.nodes = nodes
        super().__init__()

    def _retrieve(self, query_bundle):
        return self.nodes


def nodes(texts=FACTS, scores=None, **metadata):
    scores = scores or [None] * len(texts)
    return [
        NodeWithScore(node=TextNode(id_=f"n{place}", text=text, metadata=dict(metadata)), score=score)
        for place, (text, score) in enumerate(zip(texts, scores, strict=True))
    ]


def top(budget_tokens=60, **given):
    return CoragPostprocessor(budget_tokens, method="top-k", k=50, **given)


def engine(found, *processors, **given):
    return RetrieverQueryEngine.from_args(
        Finds(found), llm=Repeats(), node_postprocessors=list(processors), text_qa_template=QA, **given
    )


def test_nodes_given_are_not_changed_and_chosen_ones_tell_how_outside_of_every_prompt():
    before = nodes(file="a.txt")
    kept = [one.model_dump() for one in before]
    after = top().postprocess_nodes(before, QueryBundle(QUESTION))
    assert [one.model_dump() for one in before] == kept
    for place, one in enumerate(after):
        note = one.node.metadata[KEY]
        assert note["place"] == place and json.loads(json.dumps(one.node.metadata))[KEY] == note
        for mode in (MetadataMode.LLM, MetadataMode.EMBED):
            assert one.node.get_content(metadata_mode=mode) == before[place].node.get_content(metadata_mode=mode)


def test_the_budget_counts_the_metadata_that_the_model_sees():
    before = nodes(file="a/long/path/of/a/file.txt", secret="one two three four five six seven")
    for one in before:
        one.node.excluded_llm_metadata_keys = ["secret"]
    after = top(80).postprocess_nodes(before, query_str=QUESTION)
    shown = "\n\n".join(one.node.get_content(MetadataMode.LLM) for one in after)
    assert 20 < tokens(shown) <= 80


def test_settings_are_kept_in_json_pickles_and_copies():
    made = top(40, tokenizer="estimate", separator="\n")
    expected = [one.node.text for one in made.postprocess_nodes(nodes(), query_str=QUESTION)]
    assert made.to_dict()["class_name"] == CoragPostprocessor.class_name()
    for again in (
        CoragPostprocessor.from_dict(made.to_dict()), CoragPostprocessor.from_json(made.to_json()),
        pickle.loads(pickle.dumps(made)), copy.deepcopy(made), made.model_copy(deep=True),  # noqa: S301 - its own
    ):  # fmt: skip
        assert again.to_dict() == made.to_dict() and again.settings == {"k": 50}
        assert [one.node.text for one in again.postprocess_nodes(nodes(), query_str=QUESTION)] == expected
    named = CoragPostprocessor(9, reranker=corag.reranker("bm25", b=0.2))
    assert named.to_dict()["settings"] == {"reranker": "bm25(b=0.2)"}


@settings(max_examples=10)
@given(
    texts=st.lists(TEXTS, max_size=5), file=TEXTS, budget=st.integers(1, 90), separator=st.sampled_from(["\n\n", "\n"])
)
def test_the_context_of_a_query_engine_keeps_the_budget(texts, file, budget, separator):
    processor = CoragPostprocessor(
        budget, reranker=HashReranker(), search={"policy": "paper"}, unit="sentence", separator="\n\n"
    )
    answer = engine(nodes(texts, file=file), processor).query(QUESTION)
    assert tokens(context(answer)) <= budget
    assert [one.node.metadata[KEY]["place"] for one in answer.source_nodes] == list(range(len(answer.source_nodes)))
