"""The component in Haystack's own pipelines, written to YAML and read again, before a real prompt builder."""

import copy
import json

import pytest
from haystack import Document, Pipeline
from haystack.components.builders import PromptBuilder
from haystack.core.errors import DeserializationError

import corag
from corag.integrations.choosing import KEY
from corag.integrations.haystack import LOOP, CoragSelector
from corag.text.tokens import model_folder
from tests.corag.integrations.worlds import FACTS, QUESTION

pytestmark = pytest.mark.slow

TRUSTED = ["corag.integrations.haystack"]


def documents(texts=FACTS, scores=None, **meta):
    scores = scores or [None] * len(texts)
    return [Document(content=text, score=score, meta=dict(meta)) for text, score in zip(texts, scores, strict=True)]


def top(budget_tokens=70, **given):
    return CoragSelector(budget_tokens, method="top-k", k=50, **given)


def pipeline(selector, loop=LOOP):
    made = Pipeline()
    made.add_component("selector", selector)
    made.add_component("builder", PromptBuilder(f"BEGIN{loop}END {{{{ query }}}}", required_variables="*"))
    made.connect("selector.documents", "builder.documents")
    return made


def asked(found):
    return {"selector": {"query": QUESTION, "documents": found}, "builder": {"query": QUESTION}}


def context(result):
    """The part of the prompt that shows the documents."""
    return result["builder"]["prompt"].partition("BEGIN")[2].rpartition("END")[0]


@pytest.mark.parametrize("scores", [[0.5, None, 0.1], [31.0, -7.0, 0.0]])
def test_documents_given_are_not_changed_and_keep_id_score_and_meta(scores):
    before = documents(FACTS[:3], scores, page=7)
    kept = copy.deepcopy(before)
    after = top(500).run(query=QUESTION, documents=before)["documents"]
    assert repr(before) == repr(kept)
    assert [one.id for one in after] == [one.id for one in before]
    assert repr([one.score for one in after]) == repr(scores)
    for place, one in enumerate(after):
        assert one.meta["page"] == 7 and one.meta[KEY]["place"] == place
        assert json.loads(json.dumps(one.meta)) == one.meta


def test_a_pipeline_is_the_same_when_it_is_written_to_yaml_and_read_again(tmp_path):
    reranker = corag.reranker("bm25", b=0.2)
    tokenizer = model_folder() / "tokenizer.json"
    made = pipeline(CoragSelector(70, tokenizer, reranker=reranker, unit="passage", score_kind="rank"))
    path = tmp_path / "pipeline.yaml"
    with path.open("w") as file:
        made.dump(file)
    with path.open() as file:
        again = Pipeline.load(file, allowed_modules=TRUSTED)
    assert again.to_dict() == made.to_dict() and "bm25(b=0.2)" in path.read_text()
    assert context(again.run(asked(documents()))) == context(made.run(asked(documents()))) != ""
    with pytest.raises(DeserializationError, match="allowlist"):
        Pipeline.loads(made.dumps())
