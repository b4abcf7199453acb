"""Questions asked of a retriever of the user's own."""

import asyncio
import threading

import pytest

import corag
from corag.errors import InputError
from corag.types import Candidate, Chunk
from tests.fakes import CHARACTERS

QUESTION = "How high is Everest?"
FOUND = ["K2 is high.", "Everest is 8,849 metres high.", "Everest lies in Nepal.", "Sand is dry."]


def asked(retriever, selector="top-k", *, num_candidates=20, **settings):
    given = {"method": corag.selector(selector, tokenizer=CHARACTERS, **settings), "num_candidates": num_candidates}
    return corag.ask(QUESTION, retriever, budget_tokens=200, reader="extractive", **given)


# A fused ranking: the similarities do not fall.
FUSED = [Candidate(Chunk(text, text), cosine) for text, cosine in zip(FOUND, [0.1, 0.9, 0.8, 0.0], strict=True)]


@pytest.mark.parametrize("given", [FOUND, [{"text": text} for text in FOUND], FUSED])
def test_the_ranking_of_the_retriever_is_kept(given):
    calls = []

    def retriever(question, k):
        calls.append((question, k))
        return given

    reply = asked(retriever, k=2, num_candidates=3)
    assert reply.selection.text == "\n\n".join(FOUND[:2]) and calls == [(QUESTION, 3)]
    assert list(reply.seconds) == ["embed", "retrieve", "select", "read"] and reply.seconds["embed"] == 0
    # More than it was asked for is cut.
    assert len(asked(retriever, "full", num_candidates=3).selection) == 3


def test_a_generator_is_a_retriever_and_nothing_found_is_no_error():
    assert asked(lambda question, k: (text for text in FOUND), "full").selection.text == "\n\n".join(FOUND)
    empty = asked(lambda question, k: [])
    assert (empty.selection.ids, empty.selection.trace.reason) == ((), "the retriever found nothing")


def test_asking_in_an_event_loop():
    main = threading.get_ident()
    threads = []

    async def search(question, k):
        await asyncio.sleep(0)
        return FOUND[:k]

    class Searcher:
        async def __call__(self, question, k):
            return await search(question, k)

    def blocking(question, k):
        threads.append(threading.get_ident())
        return FOUND[:k]

    async def all_of_them():
        settings = {"method": "full", "reader": "extractive", "num_candidates": 3}
        return [await corag.aask(QUESTION, one, **settings) for one in (search, Searcher(), blocking)]

    replies = asyncio.run(all_of_them())
    assert [reply.selection.text for reply in replies] == ["\n\n".join(FOUND[:3])] * 3
    assert main not in threads and replies[0].seconds["retrieve"] > 0
    with pytest.raises(InputError, match="aask"):
        asked(search)
