"""An encoder with a cache, for many rerankers and runs: equal values, each text encoded once."""

import numpy as np
import pytest

import corag
from corag.models.cached import CachedEncoder, EncoderCounts
from corag.models.minilm import minilm_encoder
from corag.registry import RERANKERS
from corag.types import Chunk
from tests.corag.rerankers.evidence_worlds import WordEncoder

TEXTS = ["Varn\nVarn is an island in the northern sea.", "Kell\nKell is a village.", "", "Its capital is Tolmere."]
QUESTION = "What is the capital of Varn?"
SHARING = [name for name in RERANKERS.names if "encoder" in RERANKERS.settings(name)]


def test_states_are_those_of_the_encoder():
    encoder = minilm_encoder()
    ids = encoder.tokenize(TEXTS).ids
    shared = CachedEncoder(encoder)
    for _ in range(2):
        for own, other in zip(shared.states(ids), encoder.states(ids), strict=True):
            np.testing.assert_allclose(own, other, atol=1e-5)
        for own, other in zip(shared.token_embeddings(ids), encoder.token_embeddings(ids), strict=True):
            np.testing.assert_allclose(own, other, atol=1e-5)
        np.testing.assert_allclose(shared.sentence_embeddings(ids), encoder.sentence_embeddings(ids), atol=1e-5)
    assert shared.sentence_embeddings([]).shape == (0, 384)
    assert [tokens.tolist() for tokens in shared.tokenize(TEXTS).ids] == [tokens.tolist() for tokens in ids]


def test_states_do_not_depend_on_what_was_asked_before():
    encoder = minilm_encoder()
    ids = encoder.tokenize(TEXTS).ids
    forwards, backwards = CachedEncoder(encoder).states(ids), CachedEncoder(encoder).states(ids[::-1])[::-1]
    assert all(np.array_equal(one, other) for one, other in zip(forwards, backwards, strict=True))
    with pytest.raises(ValueError, match="read-only"):
        forwards[0][0] = 0


def test_counts_by_hand():
    shared = CachedEncoder(minilm_encoder(), cache_mb=0.0145)
    ids = [np.array(row) for row in ([2000, 2001, 2002], [3000], [4000, 4001])]
    shared.states([ids[0], ids[1], ids[0]])
    first = shared.counts
    assert (first.tokens_asked, first.tokens_run) == (5 + 3 + 5, 5 + 3)
    assert first.seconds_asked > first.seconds_run > 0
    shared.states([ids[2]])  # the first one is forgotten now
    shared.states(ids[:2])
    since = shared.counts - first
    assert (since.tokens_asked, since.tokens_run) == (4 + 5 + 3, 4 + 5)
    assert EncoderCounts() - EncoderCounts() == EncoderCounts()


def test_states_on_disk_are_encoded_once_and_survive(tmp_path):
    encoder = WordEncoder()
    ids = encoder.tokenize(["a b c", "b", "", "a b c"]).ids
    first = CachedEncoder(encoder, batch=2, cache_mb=0, path=tmp_path / "states.sqlite").states(ids)
    assert encoder.texts_encoded == 3
    again = CachedEncoder(encoder, batch=2, cache_mb=0, path=tmp_path / "states.sqlite")
    for expected, one, other in zip(encoder.states(ids), first, again.states(ids), strict=True):
        np.testing.assert_array_equal(one, expected)
        np.testing.assert_array_equal(other, expected)
    assert encoder.texts_encoded == 3 + 4
    assert (again.counts.tokens_run, again.counts.tokens_asked) == (0, 5 + 3 + 2 + 5)


def test_fresh_states_are_rounded_as_stored_ones(tmp_path):
    encoder = minilm_encoder()
    ids = encoder.tokenize(TEXTS).ids
    kept = CachedEncoder(encoder, path=tmp_path / "states.sqlite")
    again = CachedEncoder(encoder, path=tmp_path / "states.sqlite")
    for fresh, stored in zip(kept.states(ids), again.states(ids), strict=True):
        assert fresh.dtype == stored.dtype == np.float32
        np.testing.assert_array_equal(fresh, stored)
        np.testing.assert_array_equal(fresh, fresh.astype(np.float16))


@pytest.mark.parametrize("name", SHARING)
def test_rerankers_value_alike_with_a_shared_encoder(name):
    shared = CachedEncoder(minilm_encoder())
    chunks = [Chunk(str(row), text) for row, text in enumerate(TEXTS)]
    orders = [(0,), (1,), (2,), (3,), (0, 3), (3, 0), (1, 0, 3)]
    with_shared = corag.reranker(name, encoder=shared, cache_mb=0)
    own = corag.reranker(name).scorer(QUESTION, chunks)(orders)
    np.testing.assert_allclose(with_shared.scorer(QUESTION, chunks)(orders), own, atol=1e-4)
    np.testing.assert_allclose(
        with_shared.score(QUESTION, TEXTS), corag.reranker(name).score(QUESTION, TEXTS), atol=1e-4
    )


def test_several_rerankers_encode_each_text_once():
    shared = CachedEncoder(minilm_encoder())
    chunks = [Chunk(str(row), text) for row, text in enumerate(TEXTS)]
    tokens = shared.tokenize([QUESTION, *TEXTS]).ids
    for name in SHARING:
        corag.reranker(name, encoder=shared).scorer(QUESTION, chunks)([(0, 1)])
    assert len(SHARING) == 7
    assert shared.counts.tokens_run == sum(len(row) + 2 for row in tokens)
    vector = corag.embedder("minilm", encoder=shared).embed([QUESTION])[0]
    np.testing.assert_allclose(vector, corag.embedder().embed([QUESTION])[0], atol=1e-5)
    assert shared.counts.tokens_run == sum(len(row) + 2 for row in tokens)
