"""The postprocessor before LlamaIndex's response synthesizers; the page on frameworks has it in a query engine."""

import copy
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import PromptTemplate, QueryBundle, get_response_synthesizer
from llama_index.core.llms import MockLLM
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

import corag
from corag.integrations.choosing import KEY
from corag.integrations.llama_index import CoragPostprocessor
from tests.corag.integrations.worlds import FACTS, QUESTION, context, tokens
from tests.fakes import TEXTS, HashReranker

pytestmark = pytest.mark.slow

QA = PromptTemplate("BEGIN\n{context_str}\nEND {query_str}")


def nodes(texts=FACTS, scores=None, **metadata):
    scores = scores or [None] * len(texts)
    return [
        NodeWithScore(node=TextNode(id_=f"n{place}", text=text, metadata=dict(metadata)), score=score)
        for place, (text, score) in enumerate(zip(texts, scores, strict=True))
    ]


def top(budget_tokens=60, **given):
    return CoragPostprocessor(budget_tokens, method="top-k", k=50, **given)


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
def test_the_context_of_a_synthesizer_keeps_the_budget(texts, file, budget, separator):
    processor = CoragPostprocessor(
        budget, reranker=HashReranker(), search={"policy": "paper"}, unit="sentence", separator="\n\n"
    )
    chosen = processor.postprocess_nodes(nodes(texts, file=file), query_str=QUESTION)
    # The mock answers with its prompt.
    answer = get_response_synthesizer(llm=MockLLM(), text_qa_template=QA).synthesize(QUESTION, chosen)
    assert tokens(context(answer)) <= budget
    assert [one.node.metadata[KEY]["place"] for one in chosen] == list(range(len(chosen)))
