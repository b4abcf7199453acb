"""Five thousand candidates: which of them models read."""

from dataclasses import replace

import pytest

import corag
from corag.selectors.problem import promising
from tests.fakes import HashReranker, SignEmbedder

pytestmark = pytest.mark.slow

PUMPS = [f"Pump {number} is here. It is number {number} of all." for number in range(5000)]
ASKED = "Where is pump 4711?"


@pytest.mark.parametrize("method", ["mmr", "crag", "naive(unit=sentence)"])
def test_of_many_texts_models_read_the_promising(method):
    embedder, reranker = SignEmbedder(), HashReranker()
    selector = corag.SELECTORS.make(method, defaults={"embedder": embedder, "reranker": reranker})
    assert selector.select(ASKED, PUMPS, 64).cost_tokens > 0
    read = {*embedder.embedded, *reranker.asked}
    assert any(PUMPS[4711].startswith(text) for text in read if text)
    assert len({PUMPS.index(text) for text in read if text in PUMPS}) <= 100


def test_what_is_promising():
    by_words = promising(ASKED, [corag.Candidate(corag.Chunk(text, text)) for text in PUMPS], 64)
    assert [one.chunk.text for one in by_words] == [PUMPS[4711], *PUMPS[:99]]  # equals stay as they were given
    scored = [replace(one, similarity=-abs(n - 50) / 5000) for n, one in enumerate(by_words)]
    assert promising(ASKED, scored, 64) is scored  # as many as are read
    many = [corag.Candidate(corag.Chunk(str(n), "x"), n / 5000, rank=4999 - n) for n in range(5000)]
    assert promising(ASKED, many, 64) == many[: -128 * 4 - 1 : -1]
    assert promising(ASKED, [replace(one, rank=n) for n, one in enumerate(many)], 64) == [
        replace(one, rank=n) for n, one in enumerate(many[: 128 * 4])
    ]


def test_what_no_model_reads_is_not_filtered():
    assert len(corag.selector("full").select(ASKED, PUMPS[:300], 10**6).chunks) == 300
    assert len(corag.select(ASKED, PUMPS[:300], 10**6, method="naive", reranker="bm25").chunks) == 300
