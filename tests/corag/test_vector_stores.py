"""Results of vector stores are candidates as they are; tables and results of several queries are refused."""

from types import SimpleNamespace

import pytest

import corag
from corag.candidates import as_candidates
from corag.errors import InputError

TEXTS = ["Cats sleep a lot.", "Berlin is the capital of Germany. It has many lakes."]
QUERY = "What is Germany's capital?"


def point(number, **payload):
    return SimpleNamespace(id=number, score=0.5, payload=payload, version=1)


CHROMA = {
    "ids": [["a", "b"]],
    "documents": [TEXTS],
    "metadatas": [[{"page": 1}, None]],
    "distances": [[0.1, 0.4]],
    "embeddings": None,
}
OPENAI = {
    "file_id": "file-1",
    "filename": "a.md",
    "score": 0.7,
    "attributes": {"page": 1},
    "content": [{"type": "text", "text": "Berlin is"}, {"type": "text", "text": "the capital."}],
}


def test_results_of_vector_stores_are_taken():
    one, two = as_candidates(CHROMA)
    assert (one.chunk, one.similarity) == (corag.Chunk("a", TEXTS[0], {"page": 1}), None)
    assert two.chunk == corag.Chunk("b", TEXTS[1])
    assert as_candidates({"ids": ["a"], "documents": TEXTS[:1], "metadatas": None})[0].chunk.id == "a"
    found = [point(7, page_content=TEXTS[0], page=2), point(8, document=TEXTS[1])]
    for result in (found, SimpleNamespace(points=found)):
        one, two = as_candidates(result)
        assert (one.chunk, one.similarity, one.kind) == (corag.Chunk("7", TEXTS[0], {"page": 2}), 0.5, "score")
        assert two.chunk.text == TEXTS[1]
    for result in ([OPENAI], {"object": "vector_store.search_results.page", "data": [OPENAI]}):
        [one] = as_candidates(result)
        assert one.chunk.text == "Berlin is\nthe capital." and one.similarity == 0.7
        assert one.chunk.metadata == {"document": "a.md", "page": 1}
    assert corag.select(QUERY, CHROMA, 30, method="naive", reranker="bm25").ids == ("b", "a")


def test_tables_and_several_queries_are_refused():
    table = SimpleNamespace(columns=["id", "text"], shape=(2, 2))
    for wrong, named in ((table, r"table\['text'\]"), ({**CHROMA, "documents": [TEXTS, TEXTS]}, "2 queries")):
        with pytest.raises(InputError, match=named):
            as_candidates(wrong)
