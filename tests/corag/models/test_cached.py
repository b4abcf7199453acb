"""Encoders and embedders with a cache, and what parts keep together: equal values, each text encoded once."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import corag
from corag.errors import ModelError
from corag.memory import shared_capacity
from corag.models import encoders
from corag.models.embedders import vectors_by
from corag.models.encoders import CachedEncoder, minilm_encoder
from corag.models.runtime import resolve_device
from corag.registry import RERANKERS
from corag.types import Chunk
from tests.corag.rerankers.evidence_worlds import WordEncoder
from tests.fakes import HashEmbedder

TEXTS = ["Varn\nVarn is an island in the northern sea.", "Kell\nKell is a village.", "", "Its capital is Tolmere."]
QUESTION = "What is the capital of Varn?"
SHARING = [name for name in RERANKERS.names if "encoder" in RERANKERS.parameters(name) and "cosine" not in name]
LAKES = [
    f"Lake {number}\nIt is cold. It is {number} metres deep. Nobody swims in lake {number}." for number in range(40)
]


def test_the_windows_of_a_long_text_are_encoded_once_each_and_have_all_of_its_tokens(encoded):
    encoder, text = minilm_encoder(), "It is cold in the north. " * 120
    shared = CachedEncoder(encoder)
    for _ in range(2):
        [first], [second] = shared.encoded([text]), shared.encoded([text], 1)
    assert first.num_windows == second.num_windows == len(encoded) == 2
    [ids] = encoder.whole_ids([text])
    np.testing.assert_array_equal(np.concatenate([first.ids, second.ids]), ids)
    assert text[second.starts[-1] :].strip() == "."
    np.testing.assert_allclose(shared.vectors([text]), encoder.vectors([text]), atol=1e-5)
    with pytest.raises(ValueError, match="read-only"):
        first.states[0] = 0


@pytest.mark.parametrize("name", SHARING)
def test_rerankers_value_alike_with_a_shared_encoder_that_encodes_each_text_once(name, encoded):
    shared = CachedEncoder(minilm_encoder(precision="fp32"))
    chunks = [Chunk(str(row), text) for row, text in enumerate(TEXTS)]
    orders = [(0,), (1,), (2,), (3,), (0, 3), (3, 0), (1, 0, 3)]
    with_shared = corag.reranker(name, encoder=shared)
    own = corag.reranker(name, precision="fp32").scorer(QUESTION, chunks)(orders)
    for _ in range(2):
        np.testing.assert_allclose(with_shared.scorer(QUESTION, chunks)(orders), own, atol=1e-4)
    del encoded[:]
    with_shared.scorer(QUESTION, chunks)(orders)
    assert encoded == []


@pytest.mark.parametrize(("cache_mb", "times"), [(400, 1), (0, 2)])
def test_each_text_is_encoded_once_or_without_a_cache_for_passages_and_for_sentences(encoded, cache_mb, times):
    offered = [corag.Candidate(corag.Chunk(text, f"{text} {cache_mb}")) for text in LAKES[:12]]
    with corag.runtime(cache_mb=cache_mb):
        selector = corag.selector("corag", reranker="minilm-evidence", unit="sentence", cost_weight=0.1)
        selector.select(f"How deep is lake 1 of {cache_mb}?", offered, 60)
    assert len(encoded) == times * (1 + len(offered))


def test_all_that_a_selector_keeps_is_within_the_bound():
    with corag.runtime(cache_mb=1.5):
        reranker = corag.reranker("minilm-evidence", encoder=WordEncoder())
        selector = corag.selector("corag", reranker=reranker, unit="sentence")
    for start in range(0, 36, 4):
        offered = [corag.Candidate(corag.Chunk(text, text)) for text in LAKES[start : start + 4]]
        selector.select("How deep is lake 1?", offered, 60)
        assert 0 < shared_capacity(1_500_000).used_bytes <= 1_500_000


def test_threads_that_come_at_once_load_an_encoder_once(monkeypatch):
    loads, placement = [], replace(resolve_device("embedder"), batch_tokens=99)

    def build(name, placement):
        loads.append(name)
        time.sleep(0.1)
        return WordEncoder()

    monkeypatch.setattr(encoders, "load", lambda path: build)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: encoders.encoder_named("minilm", placement), range(4)))
    assert len(loads) == len(set(made)) == 1


SPOILT = [
    lambda vectors: np.where(np.eye(4, 8), np.nan, vectors),
    lambda vectors: vectors[1:],
    lambda vectors: [row[: index + 1] for index, row in enumerate(vectors.tolist())],
    lambda vectors: None,
    lambda vectors: vectors * 2,
]


@pytest.mark.parametrize("spoil", SPOILT)
def test_vectors_are_finite_and_of_one_length(spoil):
    embedder = HashEmbedder("spoilt")
    embedder.embed = lambda texts: spoil(HashEmbedder().embed(texts))
    with pytest.raises(ModelError, match="spoilt"):
        vectors_by(embedder, TEXTS, unit=True)
