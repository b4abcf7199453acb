"""`corag.select`: from plain texts, mappings, chunks or candidates to a selection."""

import shutil

import numpy as np
import pytest

import corag
from corag.candidates import as_candidates
from corag.errors import InputError, ModelError
from corag.models.trained import shipped_adapter
from tests.fakes import SignEmbedder

QUERY = "What is Germany's capital?"
TEXTS = ["Cats sleep a lot.", "Paris is the capital of France.", "Berlin is the capital of Germany."]


def test_plain_texts_are_candidates_with_stable_ids():
    one, two = as_candidates(["a", "b"])
    assert (one.chunk.text, one.similarity, one.chunk.metadata) == ("a", None, {})
    assert one.chunk.id != two.chunk.id
    assert as_candidates(["b", "a", "a"]) == [two, one, one]
    assert as_candidates([]) == [] == as_candidates(())


def test_mappings_chunks_and_candidates_keep_what_they_say():
    chunk = corag.Chunk("c", "text", {"page": 1})
    candidate = corag.Candidate(chunk, 3.5, "score")
    mapping = {"text": "body", "title": "Head", "id": 0, "page": 2, "similarity": 0.5, "metadata": {"source": "s"}}
    found = as_candidates([chunk, candidate, mapping, {"text": "body", "kind": "score", "similarity": 2}])
    assert found[:2] == [corag.Candidate(chunk), candidate]
    made = corag.Chunk("0", "Head\nbody", {"source": "s", "title": "Head", "page": 2})
    assert found[2] == corag.Candidate(made, 0.5)
    assert (found[3].similarity, found[3].kind, found[3].chunk) == (2, "score", as_candidates(["body"])[0].chunk)
    assert "text" in mapping  # what was given is left as it was


def test_documents_of_frameworks_pairs_and_iterables_are_candidates():
    from haystack import Document as HaystackDocument
    from langchain_core.documents import Document as LangChainDocument
    from llama_index.core.schema import NodeWithScore, TextNode

    node = TextNode(text="body", id_="n", metadata={"page": 1})
    chunk = corag.Chunk("n", "body", {"page": 1})
    for document, score in (
        (node, None),
        (NodeWithScore(node=node, score=0.5), 0.5),
        ((node, 0.5), 0.5),
        (LangChainDocument(page_content="body", id="n", metadata={"page": 1}), None),
        ((LangChainDocument(page_content="body", id="n", metadata={"page": 1}), np.float32(0.5)), 0.5),
        (HaystackDocument(content="body", id="n", meta={"page": 1}, score=0.5), 0.5),
        ({"page_content": "body", "id": "n", "metadata": {"page": 1}, "similarity": 0.5, "kind": "score"}, 0.5),
    ):
        [candidate] = as_candidates(iter([document]))
        assert (candidate.chunk, candidate.similarity) == (chunk, score)
        assert score is None or candidate.kind == "score"
    assert corag.select(QUERY, (text for text in TEXTS), 8).text == TEXTS[2]
    assert corag.selector("corag").select(QUERY, [*TEXTS[:2], {"content": TEXTS[2]}], 8).text == TEXTS[2]
    for wrong in (5, "text", {"text": "a"}, [5], [("a", "b")], [HaystackDocument(content=None)], [{"payload": {}}]):
        with pytest.raises(InputError, match="texts"):
            as_candidates(wrong)


def test_settings_go_to_the_default_or_a_selector_by_name_and_none_to_an_object():
    class First:
        name, reranker = "first", "bm25"

        def select(self, query, candidates, budget_tokens):
            assert candidates == as_candidates(TEXTS)  # as they were given
            chunk = candidates[0].chunk
            return corag.Selection((chunk,), chunk.text, 1, budget_tokens, 0.0, self.name)

    default = corag.select(QUERY, TEXTS)
    assert (default.budget_tokens, default.method, default.trace.reranker) == (1024, "corag", "fused")
    assert corag.select(QUERY, TEXTS, 8, method="naive", reranker="bm25").trace.reranker == "bm25"
    assert corag.select(QUERY, TEXTS, 8, method=First()).text == TEXTS[0]
    with pytest.raises(InputError, match="reranker"):
        corag.select(QUERY, TEXTS, 8, method=First(), reranker="bm25")


def test_a_selector_that_ships_chooses_the_same_by_name_and_as_an_object():
    assert corag.select(QUERY, TEXTS, 8, method=corag.selectors.TopK(k=1)).text == TEXTS[2]
    assert corag.select(QUERY, TEXTS, 8, method="top-k(k=1)").text == TEXTS[2]


@pytest.mark.parametrize("method", ["similarity-cutoff", "car", "mmr", "edc2", "crag", "raptor"])
def test_the_embedder_of_a_selector_embeds_each_text_once(method):
    embedder = SignEmbedder()
    corag.select(QUERY, TEXTS, 8, method=method, embedder=embedder)
    assert sorted(set(embedder.embedded)) == sorted(embedder.embedded)
    assert {QUERY, *TEXTS} <= {*embedder.embedded}


@pytest.mark.slow
def test_texts_without_a_word_are_left_out_and_questions_without_one_said(caplog):
    found = corag.select("+", ["", "a + b", " "], 64, method="top-k")
    assert (found.text, len(found.chunks), caplog.messages) == ("a + b", 1, [])
    assert corag.select("???", ["", " "], 64, method="top-k").trace.reason == "there are no candidates with a text"
    assert "the question '???' has no word" in caplog.text


def test_a_value_is_read_again_once_its_folder_has_changed(tmp_path):
    folder = tmp_path / "value"
    shutil.copytree(shipped_adapter("fused"), folder)
    named = {"reranker": f"fused(adapter={folder})", "unit": "sentence"}
    assert corag.select("Where?", ["A lake is here."], 40, **named).text == "A lake is here."
    (folder / "config.json").write_text("{}")
    with pytest.raises(ModelError):
        corag.select("Where?", ["A lake is here."], 40, **named)


def test_seconds_that_metadata_call_start_and_end_are_no_characters():
    said = ["Everest is 8,849 metres high. It is cold there.", "K2 is in Pakistan. It is steep."]
    segments = [
        {"text": text, "document": "talk.mp3", "start": 9 * number, "end": 9 * number + 8}
        for number, text in enumerate(said)
    ]
    asked = {"query": "How high is Everest?", "budget_tokens": 60, "method": "full(unit=sentence)"}
    assert corag.select(texts=segments, **asked).text == corag.select(texts=said, **asked).text == "\n\n".join(said)
