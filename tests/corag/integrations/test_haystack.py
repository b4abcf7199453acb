"""The component in Haystack's own pipelines, written to YAML and read again, before a real prompt builder."""

import pytest
from haystack import Document, Pipeline
from haystack.components.builders import PromptBuilder
from haystack.core.errors import DeserializationError

import corag
from corag.integrations.haystack import LOOP, CoragSelector
from corag.text.tokens import model_folder
from tests.corag.integrations.worlds import FACTS, QUESTION, check_kept, context

pytestmark = pytest.mark.slow

TRUSTED = ["corag.integrations.haystack"]


def shown_by(pipeline):
    """The part of a pipeline's prompt that shows the documents."""
    found = {"query": QUESTION, "documents": [Document(content=text) for text in FACTS]}
    result = pipeline.run({"selector": found, "builder": {"query": QUESTION}})
    return context(result["builder"]["prompt"])


@pytest.mark.parametrize("scores", [[0.5, None, 0.1], [31.0, -7.0, 0.0]])
def test_documents_given_are_not_changed_and_keep_id_score_and_meta(scores):
    given = [Document(content=text, score=score, meta={"page": 7}) for text, score in zip(FACTS, scores, strict=False)]
    select = CoragSelector(500, method="top-k", k=50).run
    num = check_kept(given, lambda found: select(query=QUESTION, documents=found)["documents"], lambda one: one.meta)
    assert num == len(given)


def test_a_pipeline_is_the_same_when_it_is_written_to_yaml_and_read_again(tmp_path):
    reranker = corag.reranker("bm25", b=0.2)
    tokenizer = model_folder() / "tokenizer.json"
    made = Pipeline()
    made.add_component("selector", CoragSelector(70, tokenizer, reranker=reranker, unit="passage", score_kind="rank"))
    made.add_component("builder", PromptBuilder(f"BEGIN\n{LOOP}\nEND {{{{ query }}}}", required_variables="*"))
    made.connect("selector.documents", "builder.documents")
    path = tmp_path / "pipeline.yaml"
    with path.open("w") as file:
        made.dump(file)
    with path.open() as file:
        again = Pipeline.load(file, allowed_modules=TRUSTED)
    assert again.to_dict() == made.to_dict() and "bm25(b=0.2)" in path.read_text()
    assert shown_by(again) == shown_by(made) != ""
    with pytest.raises(DeserializationError, match="allowlist"):
        Pipeline.loads(made.dumps())
