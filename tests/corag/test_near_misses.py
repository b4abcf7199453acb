"""What people type and pass who know other tools: taken for what it means, or one line that says what to write."""

from types import SimpleNamespace

import pytest

import corag
from corag.candidates import as_candidates
from corag.cli.main import MISTAKE, main
from corag.errors import CoragError, InputError

TEXTS = ["Cats sleep a lot.", "Berlin is the capital of Germany. It has many lakes."]
QUERY = "What is Germany's capital?"


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ("ask x --rerankr bm25", "did you mean 'reranker'?"),
        ("ask x --budget 1k", "budget"),
        ("aks x", "did you mean 'ask'?"),
        ("ask x --index . --reader gpt-4o", "openai(model=gpt-4o)"),
    ],
)
def test_a_command_says_what_to_write(arguments, remedy, capsys):
    assert main(arguments.split()) == MISTAKE
    error = capsys.readouterr().err
    assert remedy in error and error.count("\n") == 1


@pytest.mark.parametrize("call", [corag.select, corag.ask])
def test_a_setting_that_is_misspelled(call):
    with pytest.raises(InputError, match="did you mean 'reranker'") as error:
        call(QUERY, TEXTS, rerankr=5)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("reranker", "remedy"),
    [
        ("bm52", "did you mean 'bm25'?"),
        ("bm25(b=3)", "0 <= b <= 1"),
        ("minilm-softsim(sharpness=high)", "a number of at least 1"),
        ("cross-encoder(model=/no)", "no folder '/no'"),
    ],
)
def test_a_wrong_reranker_is_one_error(reranker, remedy, caplog):
    with pytest.raises(CoragError) as error:
        corag.select(QUERY, TEXTS, reranker=reranker)
    assert str(error.value).count(remedy) == 1 and not caplog.messages


@pytest.mark.slow
def test_ask_takes_the_settings_of_its_selector():
    reply = corag.ask(QUERY, TEXTS, unit="passage", method="naive", reranker="bm25")
    assert reply.selection.chunks[0].text in TEXTS and reply.selection.trace.reranker == "bm25"


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
